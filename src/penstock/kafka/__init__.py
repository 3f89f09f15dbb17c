"""All that speaks to Kafka: producers, the consumer, admin, internal topics, and the settings of clients.

The producer is the worker's own, for whole columns. What is sent passes through, in this order:

- ``ColumnProducer`` (``column_producer``): takes rows; ``TransactionalProducer`` (``transactional_producer``): the same
  in transactions (``transaction``, ``coordinator``).
- ``Partitioner`` (``partitioner``): chooses the partition of each row; ``encode`` (``record_batches``): columns as
  record batches.
- ``Sender`` (``sender``): the loop of the producer's thread; ``RecordAccumulator`` (``record_accumulator``): what is to
  be sent, and what answers mean for it; ``PartitionQueue`` (``partition_queue``): order and sequence numbers;
  ``ProducerId`` (``producer_id``): what they count for; ``Connections`` (``connections``) of a ``Link`` (``link``)
  each: bytes to brokers.

Everything else:

- ``RecordConsumer`` (``consumer``): messages of a sink task as columns; ``Subscription`` (``subscription``): of which
  topics; ``StartOffsets`` (``start_offsets``): from where on; ``ConsumerCommits`` (``consumer_commits``): how far.
- ``TopicAdmin`` (``admin``): topics and groups.
- ``LetterProducer`` (``letters``): single records, such as dead letters.
- ``TopicLog`` (``topic_log``): an internal topic that is read to its end and written to.
- ``ClientSettings``, ``translate`` (``client_settings``): Java's client settings as those of the client that is used,
  ``max.poll.interval.ms`` for example; ``SETTINGS`` (``client_table``): what becomes of each.
- ``group``: the worker's membership in its group.

What records and offsets mean is not known here: ``penstock.worker`` sends and commits them, ``penstock.stores`` reads
and writes internal topics. Consumers and admin clients are librdkafka's, through confluent-kafka.
"""
