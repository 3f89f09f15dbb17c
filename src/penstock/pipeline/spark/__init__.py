"""The Spark session, its JVM, and how a job gets there and back.

Start from:

- ``SparkRuntime`` (``session``): starts the session, watches it, replaces it, and runs interrupted jobs again.
- ``driver``: the JVM of a classic session, and quick ways to run plans on it. ``RemoteSession``
  (``remote_session``): a session on a Spark Connect server; ``scratch``: its temporary directory.
- ``cluster`` and ``executors``: a session whose executors are processes of a cluster, and the watch over them.
- ``MemoryBudget`` (``memory_budget``): how much of the session's memory jobs take together; ``IsolatedSession``
  (``isolated_session``, and ``isolated_main`` in its process): a session apart, for batches that cost the worker's.
- ``Gate`` (``gate``): lets tasks share a job. ``PythonWork`` (``python_work``): ends what Python workers do for one.
  ``file_descriptors``: jobs that failed for want of one.

The content of a plan is decided in ``penstock.pipeline.plan``. Nothing here knows a record.
"""
