"""The steps of a pipeline, and their composition into one plan of Spark.

Start from:

- ``Step`` (``step``): the interface of transforms and converters, and the ``Shape`` of their input and output.
- ``compile_steps`` (``chain``): steps as projections, once for each shape of records.
- ``SparkJobs`` (``jobs``): runs compiled steps, to a ``GroupOutcome`` (``chain``) for each group of records.
  ``isolated_jobs``: runs rows that crashed a session in a separate one.
- ``topics``: results by topic for plans; ``map_structs`` and ``frame_values``: parts of steps.

``penstock.pipeline.batch`` chooses the records for a plan.
"""
