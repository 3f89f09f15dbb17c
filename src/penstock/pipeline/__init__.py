"""Runs batches of records through Spark: Arrow in, one plan, Arrow out.

Four sub-packages; each uses only the ones before it:

- ``spark``: the session, its JVM, and jobs with few calls to the JVM.
- ``columns``: the layout of values in columns, and Spark expressions over them.
- ``plan``: steps, and their compilation to one plan.
- ``batch``: the path of a batch: groups, columns or rows, segments, and the assembly of results.

Start with ``SourcePipeline`` or ``SinkPipeline`` in ``penstock.pipeline.batch``, which process a task's batches.

The stock steps themselves are in ``penstock.transforms`` and ``penstock.converters``.
``penstock.worker.errors`` decides what to do with a failed record; ``penstock.worker`` owns the threads and
queues around the pipeline.
"""
