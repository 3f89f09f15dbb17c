"""Doubles in this process: no broker, no Spark.

Start from ``running`` (``control_plane``): a herder over a real worker whose tasks are doubles; ``source_doubles``,
``sink_doubles`` and ``spark_doubles``: what surrounds the runner of a task; ``MemoryLog`` (``memory_log``): internal
topics, held to the same rules as real ones (``record_log_rules``).
"""
