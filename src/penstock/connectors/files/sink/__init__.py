"""Topics into files: ``FileSink`` (``connector``).

- ``settings``: its settings.
- ``partitioners``: the directories of records. Pure.
- ``compatibility``: schemas that change. Pure.
- ``formats``, ``avro``: the columns of files, and how they are written.
- ``task``: calls ``penstock.files``, which manages open files and uploads, for each frame.
"""

from penstock.connectors.files.sink.connector import FileSink

__all__ = ["FileSink"]
