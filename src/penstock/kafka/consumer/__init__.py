"""Reads topics: for sink tasks as a member of a group, and for samples without one.

``RecordConsumer`` (``consumer``) fetches messages; ``messages`` turns them into Arrow columns and gets over messages
that the client cannot read. ``offsets`` has the subscription, start positions and commits. ``sampler`` reads without a
group.
"""
