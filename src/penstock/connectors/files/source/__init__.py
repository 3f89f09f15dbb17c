"""Files into topics: ``FileSource`` (``connector``).

- ``settings``: its settings, with those of the Java connectors; ``checks``: the texts in them.
- ``listing``: chooses the next files, and moves or deletes files that were read; ``ledger``: the files that were read,
  stored in the source offsets.
- ``readers``: the rows of files as columns, with their errors.
- ``records``: converts rows to records: keys, headers, times and topics, and bad rows to dead letter records.
- ``task``: turns all of it into frames.
"""

from penstock.connectors.files.source.connector import FileSource

__all__ = ["FileSource"]
