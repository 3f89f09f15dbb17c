"""The recipe by which another process makes an instance: ``InstanceRecipe``. A value; any thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class InstanceRecipe:
    """The recipe of an instance: its class, and the argument of ``configure``."""

    cls: type
    config: Mapping[str, object]

    def make(self, *more: object) -> Any:
        """Makes and configures a new instance."""
        made = self.cls()
        made.configure(dict(self.config), *more)
        return made
