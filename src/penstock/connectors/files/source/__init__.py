"""Files into topics: ``FileSource`` (``connector``).

- ``settings``: its settings, with those of the Java connectors; ``schemas``: the text form of schemas in them.
- ``listing``: chooses the next files; ``ledger``: the files that were read, stored in the source offsets. ``cleanup``:
  moves or deletes files that were read.
- ``readers``: the rows of files as columns, with their errors.
- ``records``: converts rows to records: keys, headers, times and topics, and bad rows to dead letter records.
- ``task``: turns all of it into frames.
"""

from penstock.connectors.files.source.connector import FileSource

__all__ = ["FileSource"]
