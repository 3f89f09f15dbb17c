"""What only tests and development use: doubles, workers and brokers to torment, recorded answers of Java's classes.

No other package imports from here. Start from:

- ``WorkerProcess`` (``worker_process``), ``WorkerGroup`` (``worker_group``): workers as processes; ``JavaWorker``
  (``java_worker``): one of Java Kafka Connect.
- ``running`` (``control_plane``): a herder without Kafka and Spark; ``cluster``: a whole group in one thread and
  virtual time.
- ``source_doubles``, ``sink_doubles``, ``spark_doubles``: what surrounds the runner of a task.
- ``ScriptedBroker`` (``scripted_broker``): answers a producer as a test says; ``CuttingProxy`` (``cutting_proxy``):
  cuts connections.
- ``MemoryLog`` (``memory_log``): internal topics in memory, held to the same rules as real ones (``record_log_rules``).
- ``ProbeSource`` (``probes``), ``JournalSource`` (``journal_source``), ``JournalSink`` (``journal_sink``): connectors
  that write down what is done to them.
- ``vectors``: recorded answers; ``reference``: pages made from the code; ``chaos``: faults, one after the other.

The embedded broker is in ``penstock.broker``. Random comparisons with Java are outside of the package, in ``python -m
differential``.
"""
