"""Suites of one connector with several configurations: wrong values are tried once, and for what each one adds."""

from __future__ import annotations

from typing import ClassVar

from penstock.config import ConfigKey
from penstock.testing.kit.suites.connectors import ConnectorSuite


class OwnSettings(ConnectorSuite):
    """A suite that gives wrong values to settings of its own only.

    Attributes:
        own: Names of the settings that get wrong values; None: all that the connector has.
    """

    own: ClassVar[tuple[str, ...] | None] = None

    def _keys(self) -> list[ConfigKey]:
        return [one for one in super()._keys() if self.own is None or one.name in self.own]
