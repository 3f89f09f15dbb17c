"""The herder's answers that are not in ``penstock.model``.

Main types: ``Health``, ``Created``. Values; any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.model.payloads import ConnectorInfo


class Health(Enum):
    """The health of the worker as a whole, with the text of the health endpoint."""

    STARTING = "starting"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


@dataclass(frozen=True)
class Created:
    """The outcome of a request that creates or changes a connector."""

    created: bool
    info: ConnectorInfo
