"""JsonConverter, with fast paths for messages that look alike.

``JsonConverter`` (``converter``) has the settings. ``Envelopes`` (``envelope``) sorts messages by their schema;
``schema`` has schemas as JSON; ``WriteJson`` (``writing``) is the step that writes messages; ``depth`` rejects messages
that are nested too deeply. ``spark`` reads messages in Spark's plans, ``arrow`` reads and writes messages that look
alike before Spark, ``values`` converts single values.
"""
