"""Topics into files: ``FileSink`` (``connector``).

- ``settings``: its settings.
- ``partitioners``, ``path_format``: the directories of records. Pure.
- ``compatibility``: schemas that change. Pure.
- ``formats``: the columns of files, and how they are written.
- ``task``: what ``put`` does with a frame. Which files are open, and how they get to the store, is in
  ``penstock.files``.
"""

from penstock.connectors.files.sink.connector import FileSink

__all__ = ["FileSink"]
