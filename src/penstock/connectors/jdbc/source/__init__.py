"""The JDBC source: ``JdbcSource`` (``connector``).

- ``settings``: its settings, and which tables they mean.
- ``position``, ``queries``, ``late_commits``: which rows come next, and how far a reader may go. Pure.
- ``ranges``: the first load of a table in ranges of its key, and what follows when. Pure. ``planning`` asks the
  database where to cut, ``ahead`` reads a range on a thread of its own.
- ``reading``: connections that run the statements and give Arrow.
- ``task``: goes round the tables.
"""

from penstock.connectors.jdbc.source.connector import JdbcSource

__all__ = ["JdbcSource"]
