"""All that speaks to Kafka: producers, the consumer, admin, internal topics, and the settings of clients.

The producer is the worker's own, for whole columns. What is sent passes through, in this order:

- ``ColumnProducer`` (``column_producer``): takes rows; ``TransactionalProducer`` (``transactional_producer``): the same
  in transactions, whose life is a ``Transaction`` (``transaction``, no I/O); ``coordinator`` asks
  its questions. ``fencing`` ends the producers of transactional ids.
- ``Partitioner`` (``partitioner``): chooses the partition of each row; ``encode`` (``record_batches``): columns as
  record batches.
- ``Sender`` (``sender``): the loop of the producer's thread; ``RecordAccumulator`` (``record_accumulator``): what is to
  be sent, and what answers mean for it; ``PartitionQueue`` beside it: order and sequence numbers;
  ``ProducerId`` (``producer_id``): what they count for; ``ClusterView`` (``cluster_view``): topics and leaders. But for
  the loop these do no I/O.
- ``Connections`` (``connections``) of a ``Link`` (``link``) each: bytes to brokers, over a ``transport`` that never
  blocks. ``wire``, ``fields`` and ``protocol_errors`` are requests and answers as bytes; ``login``, ``sasl``,
  ``credentials`` and ``tokens`` log in, again before a session ends.

Everything else:

- ``RecordConsumer`` (``consumer``): messages of a sink task as columns; ``Subscription`` (``subscription``): of which
  topics; ``StartOffsets``, ``ConsumerCommits`` (``consumer_offsets``): from where on, and how far.
  ``UnreadableRecords`` (``unreadable``): what the client cannot read, and where reading goes on behind.
- ``TopicAdmin`` (``admin``): topics and groups.
- ``LetterProducer`` (``letters``): single records, such as dead letters; ``producer_records`` makes columns of them.
- ``TopicLog`` (``topic_log``): an internal topic that is read to its end and written to, by ``log_writer``, or by the
  leader of a group in transactions.
- ``ClientSettings``, ``translate`` (``client_settings``): Java's client settings as those of the client that is used,
  ``max.poll.interval.ms`` for example; ``SETTINGS`` (``client_table``): what becomes of each; ``librdkafka_table``:
  what becomes of those that librdkafka has beside. ``OverridePolicy`` (``override_policy``): what connectors may give.
- ``group``: the worker's membership in its group.

What records and offsets mean is not known here: ``penstock.worker`` sends and commits them, ``penstock.stores`` reads
and writes internal topics. Consumers and admin clients are librdkafka's, through confluent-kafka.
"""
