"""The settings of Kafka clients: from Java's names to the settings of the client in use.

``ClientSettings`` and ``translate`` (``client``) convert them with ``SETTINGS`` (``table``), which has a row for each
setting of Kafka's clients; ``librdkafka`` has settings that only librdkafka has, ``security`` encryption and login.
``ColumnSettings`` (``producer``) are those of the worker's own producer and connections.
"""
