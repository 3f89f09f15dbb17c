"""The FileStream source and sink: lines of a file to a topic, and the values of topics to a file.

Start from:

- ``FileStreamSourceConnector``, ``FileStreamSourceTask`` (``source``) and ``FileStreamSinkConnector``,
  ``FileStreamSinkTask`` (``sink``): what the worker runs.
- ``LineReader`` (``reader``): a growing file in chunks; ``split_lines``: bytes as a column of lines.
- ``FileWatch`` (``source``): one thread that looks at the files that all tasks wait for.

They are the model for other authors: they use ``penstock.api``, ``penstock.config``, ``penstock.data`` and
``penstock.errors``, and nothing else of Penstock.
"""

from penstock.connectors.file.sink import FileStreamSinkConnector, FileStreamSinkTask
from penstock.connectors.file.source import FileStreamSourceConnector, FileStreamSourceTask

__all__ = ["FileStreamSinkConnector", "FileStreamSinkTask", "FileStreamSourceConnector", "FileStreamSourceTask"]
