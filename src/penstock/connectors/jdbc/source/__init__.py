"""The JDBC source: ``JdbcSource`` (``connector``).

- ``settings``: its settings, and the tables that they select.
- ``position``, ``queries``, ``late_commits``: the next rows, and the bound of a read. Pure.
- ``ranges``: the initial load of a table in ranges of its key. Pure. ``planning`` queries the database for the
  boundaries, ``ahead`` reads a range on its own thread.
- ``reading``: connections that run the statements and return Arrow.
- ``task``: reads the tables in turn.
"""

from penstock.connectors.jdbc.source.connector import JdbcSource

__all__ = ["JdbcSource"]
