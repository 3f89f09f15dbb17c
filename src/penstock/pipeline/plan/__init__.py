"""What a step is, and how steps become one plan of Spark.

Start from:

- ``Step`` (``step``): what a transform or converter is, and the ``Shape`` of what goes in and comes out.
- ``compile_steps`` (``chain``): steps as projections, once for each shape of records.
- ``SparkJobs`` (``jobs``): runs compiled steps, to an ``Outcome`` (``outcomes``) for each group of records.
- ``topics`` and ``quick_steps``: ways around a plan for what it would cost too much; ``objects``, ``java_text`` and
  ``variant_building``: what steps are built of.

Which records a plan is for is decided in ``penstock.pipeline.batch``.
"""
