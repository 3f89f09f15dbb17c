"""JsonConverter, and its quicker ways for messages that look alike.

``JsonConverter`` (``converter``) has the settings. ``Envelopes`` (``envelope``) sorts messages by their schema;
``schema`` has schemas as JSON; ``WriteJson`` (``writing``) is the step that makes messages; ``depth`` refuses messages
that are nested too deeply. ``spark`` reads messages in Spark's plans, ``arrow`` reads and writes messages that look
alike before Spark, ``values`` treats single values.
"""
