"""Tasks in processes of their own (``task.isolation=process``): what their authors' code does ends with the process.

Start from:

- ``isolated`` (``proxies``): the task as the runners of the worker see it; each call goes to the process.
- ``TaskProcess`` (``process``): the process as the worker sees it: started, asked, ended.
- ``TaskHost`` (``child``): the process itself, which holds the author's task; its contexts (``child_contexts``) ask the
  worker's.
- ``Channel`` (``channel``): calls in both directions over one socket; ``penstock.pipeline.batch.crossing``: the form in
  which errors and frames cross; ``Handed`` beside it: numbers for records that need not cross again.

Pipeline, Kafka clients and offsets stay in the worker: see ``penstock.worker`` for the runners, and
``docs/isolation.md`` for what users notice.
"""
