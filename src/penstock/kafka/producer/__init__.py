"""The worker's own producer, which sends whole columns.

``ColumnProducer`` (``column_producer``) takes rows; ``partitioner`` and ``record_batches`` turn them into record
batches. ``Sender`` (``sender``) is the loop of its thread, ``RecordAccumulator`` (``accumulator``) holds the batches to
send. ``TransactionalProducer`` (``transactional``) sends in transactions (``transaction``), ``RecordProducer``
(``record_producer``) single records.
"""
