"""The Spark session, and batches of records through it: Arrow in, one plan, Arrow out.

Four rooms, each of which uses those named before it alone:

- ``spark``: the session, its JVM, and how a job gets there and back with few calls.
- ``columns``: how values lie in columns, and what Spark expressions make of them.
- ``plan``: what a step is, and steps compiled to one plan.
- ``batch``: the way of a batch: groups, roads, segments, and results put together again.

Start with ``SourcePipeline`` or ``SinkPipeline`` in ``penstock.pipeline.batch``: the whole way of a task's batches.

The stock steps themselves are in ``penstock.transforms`` and ``penstock.converters``. What becomes of a failed record
is decided in ``penstock.worker.errors.tolerance``; threads and queues around the pipeline are ``penstock.worker``'s.
"""
