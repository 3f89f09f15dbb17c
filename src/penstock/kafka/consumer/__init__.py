"""Reads topics: for sink tasks as a member of a group, and for samples without one.

``RecordConsumer`` (``consumer``) fetches messages, and ``messages`` turns them into Arrow columns and keeps Python's
cycle collector out of that loop. ``Subscription`` (``offsets``) selects the topics; ``StartOffsets`` and
``ConsumerCommits`` next to it handle start positions and commits. ``UnreadableRecords`` (``unreadable``) are records
that the client cannot read. ``sampler`` reads without committing.
"""
