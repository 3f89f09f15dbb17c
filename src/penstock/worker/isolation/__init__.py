"""Tasks in processes of their own (``task.isolation=process``): what their authors' code does ends with the process.

The runners of the worker see a task as any other: a proxy (``proxies``) passes each call over a socket (``channel``,
``crossing``) to a process (``process``, ``child``), which holds the author's task and a context that asks the worker's
(``child_contexts``). Pipeline, Kafka clients and offsets stay in the worker.
"""
