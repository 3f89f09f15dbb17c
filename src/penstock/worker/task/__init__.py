"""The parts that source and sink tasks share.

- ``TaskSlot`` (``slot``): one task of a worker, with its deadlines; ``TaskEngine`` (``engine``): its thread and
  lifecycle.
- ``TaskRequest`` (``request``): the herder's request for a task; ``TaskSpec``, ``TaskServices`` (``spec``): the parts
  that a task is made from; ``TaskSession`` (``spec``): the Spark session as a task uses it; ``configs``: the
  configurations that a connector gives its tasks.
- ``BoundedQueue`` (``bounded_queue``): the queue between two threads of a task; ``OverlappingBatches``, there too: two
  batches in Spark at once; ``retries``: retried calls.
- ``task_waiting`` (``waiting``) and ``offsets_held_up``: the reason that a task waits; ``plugin_metrics``:
  metrics of plugins.
"""
