"""Processes for tests: each ends with its owner.

Start from ``WorkerProcess`` (``worker_process``) and ``WorkerGroup`` (``worker_group``): workers; ``JavaWorker``
(``java_worker``): a worker of Java Kafka Connect. The others are servers that workers talk to, and workers that end
themselves at a named point.
"""
