"""Tables of databases both ways. The packages ``source`` and ``sink`` have the connectors.

- ``addresses``, ``connection_settings``: where a database is, and which libraries it needs.
- ``tables``: what a database has; ``columns``, ``mappings``: which schema a column gets.

The libraries of a database are an extra of Penstock, so they are imported only once a connector is used.
"""

from penstock.connectors.jdbc.sink import JdbcSink
from penstock.connectors.jdbc.source import JdbcSource

__all__ = ["JdbcSink", "JdbcSource"]
