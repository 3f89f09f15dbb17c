"""Connectors for tables of databases, in the packages ``source`` and ``sink``.

- ``addresses``, ``connection_settings``: the address of a database, and the libraries that it needs.
- ``tables``: the tables of a database; ``columns``, ``mappings``: the schemas of columns.

The libraries of a database are an extra of Penstock, so they are imported only when a connector is used.
"""

from penstock.connectors.jdbc.sink import JdbcSink
from penstock.connectors.jdbc.source import JdbcSource

__all__ = ["JdbcSink", "JdbcSource"]
