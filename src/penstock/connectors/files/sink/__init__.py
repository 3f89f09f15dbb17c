"""Topics into files: ``FileSink`` (``connector``).

- ``settings``: its settings.
- ``rolling``: which files are open, and when they are closed. ``names``: what they are called. Pure.
- ``partitioners``, ``path_format``: the directories of records. Pure.
- ``compatibility``: schemas that change. Pure.
- ``formats``: the columns of files, and how they are written.
- ``task``: what ``put`` does with a frame; ``publishing``: closed files on their way to the store.
"""

from penstock.connectors.files.sink.connector import FileSink

__all__ = ["FileSink"]
