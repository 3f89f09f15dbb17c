"""Runs source tasks: poll, convert, send, commit.

A batch passes through, in this order:

- ``SourceTaskRunner`` (``task``) starts the threads; ``Poller`` in the same module calls ``poll``.
- ``Batcher`` (``batcher``) joins polls while Spark is busy.
- ``SourceConverter`` (``conversion``) makes bytes of records.
- ``SourceDelivery`` (``delivery``) hands bytes to the producer.
- ``SubmittedOffsets`` (``submitted``) knows which offsets are safe to commit. ``OffsetCommitter`` (``offset_commit``)
  commits them, or ``TransactionCommitter`` (``exactly_once``) with exactly-once, where ``transaction_boundaries``
  says.

``SourceCommits`` (``delivery_guarantee``) chooses between the two, ``SourceOffsets`` (``delivery_guarantee``) the
store.
"""
