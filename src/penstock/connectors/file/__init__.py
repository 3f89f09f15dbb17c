"""The FileStream source and sink: lines of a file to a topic, and the values of topics to a file.

Start from:

- ``FileStreamSourceConnector``, ``FileStreamSourceTask`` (``source``) and ``FileStreamSinkConnector``,
  ``FileStreamSinkTask`` (``sink``): the classes that the worker runs.
- ``LineReader`` (``reader``): a growing file in chunks; ``split_lines``: bytes as a column of lines.
- ``FileWatch`` (``source``): one thread that watches the files of all waiting tasks.

They are a model for authors: they use only ``penstock.api``, ``penstock.config``, ``penstock.data`` and
``penstock.errors``.
"""

from penstock.connectors.file.sink import FileStreamSinkConnector, FileStreamSinkTask
from penstock.connectors.file.source import FileStreamSourceConnector, FileStreamSourceTask

__all__ = ["FileStreamSinkConnector", "FileStreamSinkTask", "FileStreamSourceConnector", "FileStreamSourceTask"]
