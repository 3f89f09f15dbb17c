"""Doubles, processes and connectors for Penstock's own tests. Not in the wheel.

- ``processes``: workers, Java's worker, servers and clusters as processes of their own.
- ``brokers``: what stands for a Kafka broker or comes between it and a client; groups and logs on a real one.
- ``doubles``: what surrounds the runner of a task, a herder without Kafka and Spark, topics in memory.
- ``connectors``: connectors that record what is done to them, or do harm.
- ``simulated_cluster``: a whole group of workers in one thread and virtual time.
- ``spark_settings``: settings for quick sessions.

The kit for authors of connectors, which is in the wheel, is ``penstock.testing``.
"""
