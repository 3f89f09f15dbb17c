"""Connections to brokers that never block.

``Connections`` (``connections``) keeps a ``Link`` (``link``) for each broker, over a ``transport`` (TCP or TLS).
``login``, ``sasl``, ``credentials`` and ``tokens`` log in, again before a session ends; ``login_errors`` tells a
refused login from a lost connection. ``conversation`` asks single questions and waits for each answer.
"""
