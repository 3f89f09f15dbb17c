"""Runs source tasks: poll, convert, send, commit.

A batch passes ``SourceTaskRunner`` (``task``), ``Batcher`` (``batcher``, joins polls while Spark is busy),
``SourceConverter`` and ``SourceDelivery`` (``delivery``), then ``SubmittedOffsets`` (``submitted``), which knows the
offsets that are safe to commit. ``OffsetCommitter`` (``offset_commit``) commits them, or ``TransactionCommitter``
(``exactly_once``) where ``transaction_boundaries`` says; ``SourceCommits`` (``delivery_guarantee``) chooses between the
two, and ``SourceOffsets`` (``delivery_guarantee``) the store.
"""
