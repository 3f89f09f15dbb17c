"""The directory source: the lines of all files in watched directories, shared among tasks.

Start from:

- ``DirectorySourceConnector`` (``connector``) and ``DirectorySourceTask`` (``task``): what the worker runs.
- ``DirectoryMonitor`` (``connector``): the connector's own thread, which follows directories and committed offsets and
  asks for other task configurations.
- ``FileTracker``, ``assign``, ``StallWatch`` (``planning``): what is to be read, who reads it, who is stuck; pure.

``settings`` has the settings, and ``connector`` lists directories too. It is an example of a connector that needs
KIP-131, written against the public API; lines are split by ``penstock.connectors.file``.
"""

from penstock.connectors.directory.connector import DirectorySourceConnector
from penstock.connectors.directory.task import DirectorySourceTask

__all__ = ["DirectorySourceConnector", "DirectorySourceTask"]
