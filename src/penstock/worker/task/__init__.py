"""The parts that source and sink tasks share.

``TaskSlot`` (``slot``) is one task of a worker, with its deadlines; ``TaskEngine`` (``engine``) its thread and
lifecycle, and ``TaskSession`` (``engine``) its Spark session. ``BoundedQueue`` (``bounded_queue``) parts its stages,
``task_waiting`` (``waiting``) says what it waits for, and ``plugin_metrics`` has the metrics that plugins add.
"""
