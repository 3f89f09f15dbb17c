"""Administrative requests to a cluster.

``TopicAdmin`` (``topics``): topics, offsets of groups, ends of partitions. ``TopicCreator`` (``topic_creation``): the
topics that a task writes to. ``GroupClient`` (``groups``) also deletes single offsets of a group (``offset_deletion``).
``fencing``: fences the producers of transactional ids; ``open_transactions`` and ``transaction_inquiry``: open
transactions of other clients that hide records.
"""
