"""The runtime of a worker: connectors, and source and sink tasks with their loops, offsets and errors.

``Worker`` (``worker``) has a ``ConnectorRunner`` (``connector_runner``) for each connector and a ``TaskSlot``
(``task_slot``) for each task. ``TaskBuilder`` (``task_factory``) makes the runner of a task, out of the instances that
``make_parts`` (``task_parts``) configures.

A batch of a source passes through, in this order:

- ``SourceTaskRunner`` (``source_task``): its threads; ``Poller`` beside it: one call of ``poll``.
- ``Batcher`` (``source_stages``): joins polls while Spark is busy; ``Lookahead`` (``lookahead``): two batches at once.
- ``SourceConverter`` (``source_convert``): records become bytes.
- ``SourceDelivery`` (``source_delivery``): bytes go to the producer; ``TopicCreator`` (``topic_creation``) makes
  topics.
- ``SubmittedOffsets`` (``submitted``): which offsets are safe; ``OffsetCommitter`` (``offset_commit``) writes them, or
  ``TransactionCommitter`` (``transaction_commit``) with exactly-once. ``SourceOffsets`` (``source_offsets``) decides
  where to. ``CommitHooks`` beside the former tells the task.

A batch of a sink:

- ``SinkTaskRunner`` (``sink_task``): its threads; ``SinkFetcher``, ``SinkConverter`` (``sink_threads``): messages are
  fetched and become records; ``SinkStages`` (``sink_stages``): what the threads share.
- ``SinkLoop`` (``sink_loop``): the task's thread; ``Deliveries`` (``sink_delivery``): rows that still count, out of a
  converted batch; ``SinkPut`` (``sink_put``): calls ``put``, again if need be; ``SinkPauses`` beside it: what is
  not fetched meanwhile.
- ``SinkPartitions`` (``sink_partitions``): which rows still count; ``CommitProgress`` and ``SinkCommitter``
  (``sink_commit``): when offsets are committed, and which.

For both:

- ``Stage`` (``stage``): what waits between two of its threads, within bounds.
- ``TaskEngine`` (``task_engine``): the task's thread and its life, whose rules are in ``penstock.model``;
  ``TaskSpec``, ``TaskServices`` (``task_spec``): what a task is made with.
- ``ErrorHandler``, ``verdict`` (``tolerance``): a failed record is tried again, skipped, or ends the task;
  ``DeadLetterQueue`` (``dead_letter``) and ``LogReporter`` (``error_report``) are told.
- ``TaskSession`` (``task_session``): the Spark session as a task uses it, and what its loss means.
- ``task_waiting`` (``waiting``): what a task waits for now. ``publish_source`` (``task_metrics``): its metrics.
- ``OwnedThread`` (``threads``): every thread has one owner.
- ``isolation``: tasks in processes of their own. ``Previewer`` (``preview``): a chain tried on a few records.

What should run is decided in ``penstock.herder``. What happens to the records of a batch is in ``penstock.pipeline``,
what happens to its bytes in ``penstock.kafka``.
"""
