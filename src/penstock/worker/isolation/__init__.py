"""Tasks in separate processes (``task.isolation=process``): the effects of the author's code end with the process.

Start from:

- ``isolated`` (``process``): the proxy that the worker's runners use as the task; each call goes to the process.
- ``TaskProcess`` (``process``): starts, calls and ends the process.
- ``TaskHost`` (``child``): the process itself, which holds the author's task; its contexts call the worker's.
- ``Channel`` (``channel``): calls in both directions over one socket; ``penstock.pipeline.batch.transfer``: the form in
  which errors and frames cross; ``HandedOverObjects`` next to it: numbers for records that need not cross again.

Pipeline, Kafka clients and offsets stay in the worker: see ``penstock.worker`` for the runners, and
``docs/isolation.md`` for the effects on users.
"""
