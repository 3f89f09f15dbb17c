"""The steps of a pipeline, and their composition into one plan of Spark.

Start from ``Step`` (``step``), the interface of transforms and converters, and ``compile_steps`` (``chain``): steps as
projections, once for each shape of records. ``SparkJobs`` (``jobs``) runs compiled steps; ``isolated_jobs`` has batches
that crashed a session tried in another. ``map_structs`` and ``frame_values`` are parts of steps. The stock steps are in
``penstock.transforms`` and ``penstock.converters``.
"""
