"""The parts that source and sink tasks share.

- ``TaskSlot`` (``slot``): one task of a worker, with its deadlines; ``TaskEngine`` (``engine``): its thread and life.
- ``TaskRequest`` (``request``): what the herder asks for; ``TaskSpec``, ``TaskServices`` (``spec``): what a task is
  made with; ``configs``: the configurations that a connector gives its tasks; ``TaskSession`` (``session``): the Spark
  session as a task uses it.
- ``bounded_queue``: the queue between two threads of a task; ``overlap``: two batches in Spark at once;
  ``retries``: calls that are made again.
- ``task_waiting`` (``waiting``) and ``offsets_held_up``: the condition that a task waits for; ``plugin_metrics``:
  metrics of plugins.
"""
