"""The kit for authors of connectors, which is public, and the doubles of Penstock's own tests, which are not.

Authors import functions and suites from here; all of it is in ``kit``, which imports nothing else of this package. No
other package imports from here.

The rest is for tests and development: doubles, workers and brokers to torment, recorded answers of Java's classes.
Start from:

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

from penstock.testing import kit
from penstock.testing.kit import *  # noqa: F403 - one list says what is public

__all__ = kit.__all__
