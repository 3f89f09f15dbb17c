"""Bulk work: big bounded reads that Spark's executors convert and write to Kafka themselves.

A source task returns a bulk frame (``penstock.api``). ``BulkEngine`` (``engine``) does it:

- ``planned`` (``planning``): the query after the chain's plan, in a stable set of Spark partitions.
- ``shipped`` and ``probe_executors`` (``shipping``): ships the work to executors.
- ``PartitionWork`` (``executor``): runs there; rows become messages, and go to Kafka in transactions.
- ``RunKey``, ``Marker``, ``Markers`` (``runs``): the state of a run, and all decisions; no I/O.

``penstock.worker.factory.bulk`` makes the engine of a task. The offset of a run that is done goes the way of all source
offsets; that is the matter of ``SourceTaskRunner``.
"""
