"""The Spark session, its JVM, and the execution of jobs.

Start from:

- ``SparkRuntime`` (``session``): starts the session, watches it, replaces it, and runs interrupted jobs again, as it
  does jobs that failed for lack of file descriptors.
- ``driver``: the JVM of a classic session, and fast ways to run plans on it. ``RemoteSession`` (``remote_session``): a
  session on a Spark Connect server; ``scratch``: its temporary directory.
- ``cluster`` and ``executors``: a session whose executors are processes of a cluster, and the watch over them.
- ``MemoryBudget`` (``gate``): limits the session's memory for jobs; ``IsolatedSession`` (``isolated_session``,
  and ``isolated_main`` in its process): a separate session, for batches that crashed the worker's.
- ``Gate`` and ``Passing`` (``gate``): let tasks share a job. ``PythonWork``, there too: ends a task's jobs in Python
  workers.

``penstock.pipeline.plan`` makes the plans. This package does not know records.
"""
