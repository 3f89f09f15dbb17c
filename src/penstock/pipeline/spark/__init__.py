"""The Spark session, its JVM, and the execution of jobs; it does not know records.

Start from ``SparkRuntime`` (``session``), which starts the session, watches it, replaces it, and runs interrupted jobs
again. Jobs enter through ``gate``; ``prepared_plan`` runs plans with few calls to the JVM. The session is on a JVM of
its own (``jvm``), a cluster (``cluster``) or a Spark Connect server (``remote_session``); ``isolated_session`` has a
separate one for batches that crashed it.
"""
