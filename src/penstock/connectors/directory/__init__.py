"""The directory source: the lines of all files in watched directories, shared among tasks.

Main types: `DirectorySourceConnector`, which watches from a thread of its own and follows its tasks through their
offsets, and `DirectorySourceTask`. An example of a connector that needs KIP-131; written against the public API.

`settings` has the settings; `planning` the decisions (what is to be read, who reads it, who is stuck), pure functions
and small classes with an injected clock; `scanning` lists directories; `monitor` is the connector's thread; `tail`
and `task` read.
"""

from penstock.connectors.directory.connector import DirectorySourceConnector
from penstock.connectors.directory.task import DirectorySourceTask

__all__ = ["DirectorySourceConnector", "DirectorySourceTask"]
