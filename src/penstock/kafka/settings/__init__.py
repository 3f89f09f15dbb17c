"""The settings of Kafka clients: Java's names in, the settings of the client in use out.

``ClientSettings`` and ``translate`` (``client``) do it by ``SETTINGS`` (``table``), which has a row for each setting of
Kafka's clients; ``librdkafka_table`` has those that only librdkafka knows, ``librdkafka_properties`` their list.
``families`` are settings that go together, ``values`` their types. ``producer`` has the settings of the worker's own
producer, ``security`` encryption and login. ``OverridePolicy`` (``override_policy``) says what a connector may set.
"""
