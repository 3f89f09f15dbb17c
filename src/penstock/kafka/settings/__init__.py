"""The settings of Kafka clients: from Java's names to the settings of the client in use.

``ClientSettings`` and ``translate`` (``client``) convert them with ``SETTINGS`` (``table``), which has a row for each
setting of Kafka's clients; ``librdkafka_table`` handles settings that only librdkafka has, listed in
``librdkafka_properties``. ``families`` combines settings that depend on each other, ``values`` converts single values.
``producer`` has the settings of the worker's own producer, ``security`` encryption and login. ``OverridePolicy``
(``table``) decides which settings a connector may override.
"""
