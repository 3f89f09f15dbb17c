"""Kafka's protocol as bytes: no I/O.

``messages`` reads and writes the fields of messages, and has the requests of a producer and their responses;
``ClusterView`` (``cluster_view``) keeps topics and leaders; ``error_of`` next to it explains an error code.
"""
