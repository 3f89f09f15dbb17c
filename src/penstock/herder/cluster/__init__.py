"""The decisions of a group of workers: which worker runs which connector and task, and what a worker does about it.

Everything here is a value or a pure function; clock, Kafka and threads are elsewhere. Start from:

- ``Units`` (``units``): the connectors and tasks that a worker runs, or that are to be given or taken.
- ``connect_protocol``: what members of the group tell each other, as bytes that Java Kafka Connect reads and writes.
- ``assign_eagerly`` (``eager``) and ``assign`` (``incremental``): the two ways in which a leader deals out the work.

What is configured is a ``ClusterConfig``, in ``penstock.model``.

Source: KIP-415, KIP-507; internal-topics.md section 5, group-membership.md.
"""
