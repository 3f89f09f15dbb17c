"""The Spark session, its JVM, and how a job gets there and back.

Start from:

- ``SparkRuntime`` (``session``): starts the session, watches it, replaces it, and runs again what was under way.
- ``DriverJvm`` (``driver_jvm``): the JVM as a process of its own, with ``memory_pool``;
  ``RemoteSession`` (``remote_session``): a session on a Spark Connect server; ``class_archive``: quicker starts;
  ``scratch``: its temporary directory.
- ``DriverPlan``, ``PreparedQuery`` (``driver_plan``): plans with fewer calls to the JVM than PySpark makes
  (``driver_calls``).
- ``MemoryBudget`` (``memory_budget``): how much of the session's memory jobs take together; ``IsolatedSession``
  (``isolated_session``, and ``isolated_main`` in its process): a session apart, for batches that cost the worker's.
- ``Gate`` (``gate``): lets tasks share a job. ``PythonWork`` (``python_work``): ends what Python workers do for one.

What a plan says is in ``penstock.pipeline.plan``. Nothing here knows a record.
"""
