"""Reads topics: for sink tasks as a member of a group, and for samples without one.

``RecordConsumer`` (``consumer``) fetches messages, which ``messages`` makes Arrow columns of. ``Subscription``
(``subscription``) says of which topics; ``StartOffsets`` and ``ConsumerCommits`` (``offsets``) say from where on, and
how far. ``UnreadableRecords`` (``unreadable``) are records that the client cannot read. ``sampler`` reads without
committing. ``gc_tuning`` keeps Python's cycle collector out of the loop.
"""
