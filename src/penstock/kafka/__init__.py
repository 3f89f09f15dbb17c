"""Communication with Kafka: producers, the consumer, admin requests, internal topics, and the settings of clients.

- ``producer``: the worker's own producer, which sends whole columns, also in transactions.
- ``consumer``: messages of a sink task as columns, start positions and commits; samples of topics.
- ``topic_log``: internal topics as logs. ``group``: the membership of a worker in its group.
- ``admin``: topics and consumer groups. ``open_transactions``: transactions of other clients that hide records.
- ``settings``: Java's client settings as those of the client in use.
- ``network``: connections to brokers, with encryption and login. ``protocol``: requests and responses as bytes, error
  codes.

Consumers and admin clients are librdkafka's, through confluent-kafka. ``penstock.worker`` gives records and offsets
their meaning, ``penstock.stores`` internal topics.
"""
