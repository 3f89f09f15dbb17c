"""Connections to brokers that never block.

``ProducerConnections`` (``connections``) keeps a ``Link`` for each broker, over a ``Transport`` (``transport``; TCP or
TLS). ``login``, ``sasl``, ``credentials`` and ``tokens`` log in, and again before a session ends; ``login_errors``
distinguishes a rejected login from a lost connection. ``conversation`` makes single requests and waits for each
response."""
