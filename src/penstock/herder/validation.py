"""Checks connector configurations before anything is started.

Main types: ``ConnectorValidator``, ``Checked``. Runs users' code (``config``, ``validate``), so it is called on a
thread of its own. Stateless.

Source: org.apache.kafka.connect.runtime.AbstractHerder.validateConnectorConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from penstock.errors import BadRequestException
from penstock.model import ConnectorType


@dataclass(frozen=True)
class Checked:
    """What a check found out about a configuration that is right.

    Attributes:
        type: Source or sink.
        version: The version of the connector's class.
        max_tasks: ``tasks.max``.
        enforce_max_tasks: ``tasks.max.enforce``.
    """

    type: ConnectorType
    version: str | None = None
    max_tasks: int = 1
    enforce_max_tasks: bool = True


class Validator(Protocol):
    """Checks a configuration."""

    def __call__(self, config: Mapping[str, str | None], resolved: Mapping[str, str | None]) -> Checked:
        """Checks one configuration.

        Args:
            config: As given.
            resolved: With its placeholders resolved.

        Raises:
            BadRequestException: it is wrong; the message has all faults.
        """


def invalid(errors: list[str]) -> BadRequestException:
    """The error for a configuration with faults.

    >>> print(invalid(["Missing required configuration \\"topic\\" which has no default value."]))
    Connector configuration is invalid and contains the following 1 error(s):
    Missing required configuration "topic" which has no default value.
    You can also find the above list of errors at the endpoint `/connector-plugins/{connectorType}/config/validate`
    """
    lines = "\n".join(errors)
    return BadRequestException(
        f"Connector configuration is invalid and contains the following {len(errors)} error(s):\n{lines}\n"
        "You can also find the above list of errors at the endpoint "
        "`/connector-plugins/{connectorType}/config/validate`"
    )
