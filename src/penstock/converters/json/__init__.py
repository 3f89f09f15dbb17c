"""JsonConverter, with fast paths for messages that look alike.

``JsonConverter`` (``converter``) has the settings and the step that writes messages; ``envelope`` sorts messages by
their schema. ``byte_columns``, ``schemaless``, ``structs`` and ``writing`` work with Arrow before or after Spark, in a
fraction of the time of a plan; ``reading`` and ``lenient`` read in Spark's plans. ``values`` converts single values,
``plain_bytes`` the bytes of single messages.
"""
