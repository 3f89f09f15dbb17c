"""Topics into files of a directory or an object store: ``FileSink`` (``connector``).

- ``settings``: its settings.
- ``rolling``: which files are open, and when they are closed. ``names``: what they are called. Pure.
- ``partitioners``, ``path_format``: the directories of records. Pure.
- ``columns``, ``widening``, ``compatibility``: the columns of a file, and schemas that change. Pure.
- ``formats``, ``avro``: how files are written.
- ``spill``: rows that were moved out of memory.
- ``stores``: where files go.
- ``task``: what ``put`` does with a frame; ``publishing``: closed files on their way to the store.
"""

from penstock.connectors.files.connector import FileSink

__all__ = ["FileSink"]
