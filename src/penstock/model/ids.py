"""The name of a task: connector and number.

Main type: ``ConnectorTaskId``. A value; any thread.
"""

from __future__ import annotations

from typing import NamedTuple


class ConnectorTaskId(NamedTuple):
    """Identifies one task of one connector.

    Source: org.apache.kafka.connect.util.ConnectorTaskId.

    >>> str(ConnectorTaskId("local-file-source", 0))
    'local-file-source-0'
    """

    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"

    def to_json(self) -> dict[str, object]:
        """The shape used by REST: ``{"connector": ..., "task": ...}``."""
        return {"connector": self.connector, "task": self.task}
