"""The steps of a pipeline, and their composition into one plan of Spark.

Start from:

- ``Step`` (``step``): what a transform or converter is, and the ``Shape`` of what goes in and comes out.
- ``compile_steps`` (``chain``): steps as projections, once for each shape of records.
- ``SparkJobs`` (``jobs``): runs compiled steps, to an ``Outcome`` (``outcomes``) for each group of records.
  ``isolated_jobs``: rows that cost a session, tried in one of their own.
- ``topics``: what a plan needs to know of topics; ``map_structs``, ``frame_values`` and ``variant_building``: what
  steps are built of.

Which records a plan is for is decided in ``penstock.pipeline.batch``.
"""
