"""The stores that outlive a worker: the offsets of sources, the configurations of connectors, the states of both.

Start from:

- ``OffsetStore``, ``ConfigStore``, ``StatusStore`` (``interface``): the interfaces for the worker and the herder.
- ``OffsetWriter``, ``OffsetReader`` (``offsets``): source offsets in Kafka Connect's JSON, written to and read from an
  offset store: ``FileOffsetStore`` (``offset_file``), or ``OffsetTopicStore``, ``MergedOffsetStore`` and
  ``MemoryOffsetStore`` next to them.
- ``ConfigTopicStore``, or ``LocalConfigStore`` for a standalone worker, with its own file (``config``): the
  configuration of connectors and tasks.
- ``StatusTopicStore``, ``LocalStatusStore`` (``status``): the states of connectors and tasks.

``penstock.worker.source.offset_commit`` and ``penstock.worker.source.exactly_once`` decide when a source's offsets are
written. The offsets of sinks are in their consumer groups: see ``penstock.worker.sink.deliveries``.
``penstock.kafka.topic_log.log`` reads and writes the topics.
"""
