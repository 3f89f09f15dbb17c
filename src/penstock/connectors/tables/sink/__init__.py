"""Topics into tables of lakehouses: ``TableSink`` (``connector``).

- ``settings``: its settings, by the names here and by those of Iceberg's sink.
- ``intake``: chooses the table of a record. ``changes``: converts rows of frames to rows of tables, and their keys.
  Pure.
- ``pending``: rows that wait for the next commit.
- ``task``: takes frames, and commits them.
"""

from penstock.connectors.tables.sink.connector import TableSink

__all__ = ["TableSink"]
