"""Bulk work: big bounded reads that Spark's executors convert and write to Kafka themselves.

A source task returns a bulk frame (``penstock.api``). ``BulkEngine`` (``engine``) plans it (``planning``), ships it to
executors (``shipping``), where ``PartitionWork`` (``executor``) makes messages of rows and sends them in transactions;
``runs`` has the state of a run and all decisions. ``sink_driver`` and ``range_work`` do the same for sinks.
"""
