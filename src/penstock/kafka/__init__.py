"""Communication with Kafka: producers, the consumer, admin requests, internal topics, and the settings of clients.

- ``producer``: the worker's own producer, which sends whole columns, also in transactions.
- ``consumer``: messages of a sink task as columns, start positions and commits; samples of topics.
- ``admin``: topics, groups, fencing, and transactions of other clients.
- ``topic_log``: internal topics as logs.
- ``group``: the membership of a worker in its group.
- ``settings``: Java's client settings as those of the client in use.
- ``network``: connections to brokers, with encryption and login. ``protocol``: requests and responses as bytes.

The meaning of records and offsets is handled elsewhere: ``penstock.worker`` sends and commits them, ``penstock.stores``
reads and writes internal topics. Consumers and admin clients are librdkafka's, through confluent-kafka.
"""
