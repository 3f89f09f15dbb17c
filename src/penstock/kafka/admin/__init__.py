"""Requests to a cluster besides producing and consuming.

``TopicAdmin`` (``topics``): topics, offsets of groups, ends of partitions. ``TopicCreator`` (``topic_creation``): the
topics that a task writes to. ``offset_deletion``: single offsets of a group. ``fencing``: ends the producers of
transactional ids; ``open_transactions`` and ``transaction_inquiry``: transactions of other clients that hide records.
"""
