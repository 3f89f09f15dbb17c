"""The FileStream source and sink: lines of a file to a topic, and the values of topics to a file.

Main types: `FileStreamSourceConnector`, `FileStreamSinkConnector`. They are the model for other authors: they use
`penstock.api`, `penstock.config`, `penstock.data` and `penstock.errors`, and nothing else of Penstock.
"""

from penstock.connectors.file.sink import FileStreamSinkConnector, FileStreamSinkTask
from penstock.connectors.file.source import FileStreamSourceConnector, FileStreamSourceTask

__all__ = ["FileStreamSinkConnector", "FileStreamSinkTask", "FileStreamSourceConnector", "FileStreamSourceTask"]
