"""The stores that outlive a worker: the offsets of sources, the configurations of connectors, the states of both.

Start from:

- ``OffsetStore``, ``ConfigStore``, ``StatusStore`` (``interface``): what the worker and the herder need.
- ``OffsetWriter``, ``OffsetReader`` (``offsets``): source offsets in Kafka Connect's JSON, written to and read from an
  offset store: ``FileOffsetStore`` (``offset_file``), ``OffsetTopicStore`` (``offset_topic``), ``MergedOffsetStore``
  beside it, or ``MemoryOffsetStore`` (``memory``).
- ``ConfigTopicStore``, or ``LocalConfigStore`` for a standalone worker, with a file of its own (``config``): what is
  configured to run.
- ``StatusTopicStore``, ``LocalStatusStore`` (``status``): what connectors and tasks do.

When a source's offsets are written is decided in ``penstock.worker``, by ``penstock.worker.source.offset_commit`` and
``penstock.worker.source.exactly_once``. The offsets of sinks are in their consumer groups: see
``penstock.worker.sink.commit``. The topics are read and written by ``penstock.kafka.topic_log.log``.
"""
