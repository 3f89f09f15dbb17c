"""Kafka's protocol as bytes: no I/O.

``fields`` reads and writes the fields of messages; ``messages`` has the requests of a producer and their answers;
``errors`` the errors that a broker may answer; ``ClusterView`` (``cluster_view``) keeps topics and leaders.
"""
