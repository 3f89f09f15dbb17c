"""The JDBC sink: ``JdbcSink`` (``connector``).

- ``settings``: its settings.
- ``changes``: the rows of a frame, as upserts and deletes of one table. Pure.
- ``statements``: the SQL that creates, alters and writes a table. Pure.
- ``writing``: connections that run it.
- ``task``: handles ``put``.
"""

from penstock.connectors.jdbc.sink.connector import JdbcSink

__all__ = ["JdbcSink"]
