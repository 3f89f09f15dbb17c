"""All that speaks to Kafka: producers, the consumer, admin, internal topics, and the settings of clients.

- ``producer``: the worker's own producer, which sends whole columns, also in transactions.
- ``consumer``: messages of a sink task as columns, from where on and how far; samples of topics.
- ``admin``: topics, groups, fencing, and transactions of other clients.
- ``topic_log``: internal topics as logs.
- ``group``: the membership of a worker in its group.
- ``settings``: Java's client settings as those of the client in use.
- ``network``: connections to brokers, encrypted and logged in. ``protocol``: requests and answers as bytes.

The meaning of records and offsets is elsewhere: ``penstock.worker`` sends and commits them, ``penstock.stores`` reads
and writes internal topics. Consumers and admin clients are librdkafka's, through confluent-kafka.
"""
