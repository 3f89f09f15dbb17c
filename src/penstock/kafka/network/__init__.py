"""Connections to brokers that never block.

``ProducerConnections`` (``connections``) keeps a ``Link`` for each broker, over a ``Transport`` (``transport``; TCP or
TLS). ``sasl`` and ``credentials`` log in, and again before a session ends; ``refuses_login`` (``sasl``) distinguishes a
rejected login from a lost connection. ``Conversation`` (``connections``) makes single requests and waits for each
response."""
