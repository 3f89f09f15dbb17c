"""Connections to brokers that never block.

``ProducerConnections`` (``connections``) keeps a ``Link`` (``transport``) for each broker; ``credentials`` and ``sasl``
log in. ``Conversation`` makes single requests and waits for each response.
"""
