"""Files into topics: ``FileSource`` (``connector``).

- ``settings``: its settings, with those of the Java connectors; ``schemas``: schemas as they are written in them.
- ``listing``: which files are read next; ``ledger``: which were read, kept in the source offsets. ``cleanup``: what
  becomes of files that were read.
- ``readers``: the rows of files as columns, with what is wrong in them.
- ``records``: rows as records: keys, headers, times and topics, and bad rows as dead letters.
- ``task``: turns all of it into frames.
"""

from penstock.connectors.files.source.connector import FileSource

__all__ = ["FileSource"]
