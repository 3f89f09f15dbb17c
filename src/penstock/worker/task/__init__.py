"""The parts that source and sink tasks share.

- ``TaskSlot`` (``slot``): one task of a worker, with its deadlines; ``TaskRequest`` (``slot``): the herder's request
  for it; ``TaskEngine`` (``engine``): its thread and lifecycle.
- ``TaskSpec``, ``TaskServices`` (``spec``): the parts that a task is made from; ``TaskSession`` (``spec``): the Spark
  session as a task uses it; ``configs``: the configurations that a connector gives its tasks.
- ``BoundedQueue`` (``bounded_queue``): the queue between two threads of a task; ``OverlappingBatches``, there too: two
  batches in Spark at once.
- ``task_waiting`` (``waiting``): the reason that a task waits, retried calls; ``plugin_metrics``: metrics of plugins.
"""
