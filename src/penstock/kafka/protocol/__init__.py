"""Kafka's protocol as bytes: no I/O.

``messages`` reads and writes the fields of messages, and has the requests of a producer and their responses;
``errors`` the errors that a broker may return; ``ClusterView`` (``cluster_view``) keeps topics and leaders.
"""
