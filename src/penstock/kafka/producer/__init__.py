"""The worker's own producer, which sends whole columns.

Rows pass through, in this order:

- ``ColumnProducer`` (``column_producer``) takes them; ``TransactionalProducer`` (``transactional``) does so in
  transactions, whose life is a ``Transaction`` (``transaction``, no I/O). ``transaction_coordinator`` asks the
  coordinator.
- ``Partitioner`` (``partitioner``) chooses the partition of each row; ``encode`` (``record_batches``) makes record
  batches.
- ``Sender`` (``sender``) is the loop of the producer's thread. ``RecordAccumulator`` (``accumulator``) holds what is to
  be sent, ``Deliveries`` (``in_flight``) what was sent; ``ProducerId`` (``producer_id``) numbers it.

``record_producer`` sends single records, such as dead letters; ``records`` makes columns of them.
"""
