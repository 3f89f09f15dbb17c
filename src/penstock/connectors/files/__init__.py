"""Files of a directory or an object store both ways. The packages ``sink`` and ``source`` have the connectors.

- ``columns``: the columns of values, and schemas in the metadata of files. Pure.

``penstock.files``, which is public, handles open files and stores.
"""

from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.source import FileSource

__all__ = ["FileSink", "FileSource"]
