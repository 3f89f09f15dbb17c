"""The worker's own producer, which sends whole columns.

Rows pass through, in this order:

- ``ColumnProducer`` (``column_producer``) takes them; ``TransactionalProducer`` (``transactional``) does so in
  transactions; ``Transaction`` (``transaction``, no I/O) is their state machine. ``transaction_coordinator``
  communicates with the coordinator.
- ``Partitioner`` (``partitioner``) chooses the partition of each row; ``encode`` (``record_batches``) makes record
  batches; ``batch_of`` next to it turns single records into columns.
- ``Sender`` (``sender``) is the loop of the producer's thread. ``RecordAccumulator`` (``accumulator``) holds batches to
  send, ``InFlightRows`` (``in_flight``) rows in flight; ``ProducerId`` (``accumulator``) numbers batches.

``record_producer`` sends single records, such as dead letter records.
"""
