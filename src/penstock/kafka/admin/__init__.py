"""Administrative requests to a cluster.

``TopicAdmin`` (``topics``): topics, offsets of groups, ends of partitions. ``TopicCreator`` next to it: the topics that
a task writes to. ``GroupClient`` (``groups``) also deletes single offsets of a group. ``transaction_inquiry`` queries
transactions and fences the producers of transactional ids; ``open_transactions`` handles open transactions of other
clients that hide records."""
