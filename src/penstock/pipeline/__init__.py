"""The Spark session, and batches of records through it: Arrow in, one plan, Arrow out.

A batch passes through, in this order:

- ``SourcePipeline`` (``source``) or ``SinkPipeline`` (``sink``): the whole way of a task's batches. What goes in and
  comes out is in ``batches``; ``cut_transforms`` (``segments``) cuts a chain where Python has to run between plans.
- ``group_records`` (``grouping``), or ``columns_of_table`` (``frame``) for frames: records as columns, a group for each
  pair of schemas. ``types`` says how a schema lies in columns, ``to_arrow`` (``records``) fills them, ``objects`` has
  schemaless maps that look alike, ``variant`` what frames are given of other schemaless values.
- ``why_rows`` (``roads``): which records are columns, and which go through ``row_road`` one by one, and why.
- ``Spreader`` (``spreading``): sends large batches to Spark's Python workers, as ``Part`` (``parts``), where
  ``StatelessWork`` (``python_workers``) runs transforms without state; ``crossing``: the form of errors.
- ``Step`` (``step``): what a transform or converter is; ``compile_steps`` (``chain``): steps as Spark projections, once
  for each shape of records. ``json_columns``, ``java_text`` and ``java_dates`` are what steps are built of.
- ``SparkJobs`` (``jobs``): runs compiled steps, to an ``Outcome`` (``outcomes``) for each group; ``Gate`` (``gate``):
  lets tasks share a job; ``DriverPlan`` (``driver_plan``) and ``PreparedQuery`` (``prepared``): the same with fewer
  calls to the JVM.
- ``Assembly`` (``assembly``) or ``frames_of`` (``sink_frames``): results put together again, row i for record i.
  ``Failures`` (``segments``) has the errors by record.

Ways around a plan, for what it would cost too much: ``row_road``, ``headers``, ``topics``, ``quick_steps``.

The session: ``SparkRuntime`` (``session``) starts, watches and replaces it; ``DriverJvm`` (``driver_jvm``) is a JVM of
its own, ``RemoteSession`` (``remote_session``) one on a Spark Connect server.

The stock steps themselves are in ``penstock.transforms`` and ``penstock.converters``. What becomes of a failed record
is decided in ``penstock.worker.tolerance``; threads and queues around the pipeline are ``penstock.worker``'s.
"""
