"""Files of a directory or an object store both ways. The packages ``sink`` and ``source`` have the connectors.

- ``stores``: where files are; ``store_settings``: the settings that say it.
- ``spill``: rows that were moved out of memory.
- ``file_schemas``: schemas in the metadata of files. Pure.
- ``columns``, ``widening``: the columns of values, and types that only widen. Pure.
"""

from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.source import FileSource

__all__ = ["FileSink", "FileSource"]
