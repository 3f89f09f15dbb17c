"""JsonConverter, with fast paths for messages that look alike.

``JsonConverter`` (``converter``) has the settings; ``WriteJson``, there too, is the step that writes messages.
``Envelopes`` (``envelope``) sorts messages by their schema, and has schemas as JSON. ``spark`` reads messages in
Spark's plans, ``arrow`` reads and writes messages that look alike before Spark, ``values`` converts single values."""
