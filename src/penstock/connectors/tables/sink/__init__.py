"""Topics into tables of lakehouses: ``TableSink`` (``connector``).

- ``settings``: its settings, by the names here and by those of Iceberg's sink.
- ``routing``: which table a record goes to. ``changes``: rows of frames as rows of tables, and their keys. Pure.
- ``pending``: rows that wait for the next commit.
- ``task``: what ``put`` does with a frame, and when it is committed.
"""

from penstock.connectors.tables.sink.connector import TableSink

__all__ = ["TableSink"]
