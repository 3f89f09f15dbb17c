"""Settings of the table source: `TableSourceConfig`. Values; any thread."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from enum import Enum
from typing import Self

from penstock.config import CaseInsensitiveValidString, ClassResolver, ConfigType, Importance, Range, setting
from penstock.connectors.tables.places import LakeConfig
from penstock.connectors.tables.sink.settings import with_own_names
from penstock.errors import ConfigException


class OnRewrite(Enum):
    """The treatment of versions that change or delete rows without naming them."""

    FAIL = "fail"
    IGNORE = "ignore"


class TableSourceConfig(LakeConfig):
    """The settings of the table source."""

    tables: tuple[str, ...] = setting(importance=Importance.HIGH, doc="The tables to read.")
    topic_prefix: str = setting(
        default="", importance=Importance.HIGH, doc="The topic of a table is this and the name of the table."
    )
    key_columns: tuple[str, ...] = setting(
        default=(),
        importance=Importance.HIGH,
        doc="The columns that are the key of records. Deletes that the change data feed of a Delta table tells are "
        "tombstones of these keys.",
    )
    start_from: str = setting(
        default="snapshot",
        importance=Importance.HIGH,
        doc="The start of a table that was not read yet. snapshot: all its rows, then its changes. latest: only new "
        "changes. A number: the changes after that version of Delta or snapshot of Iceberg. A time in ISO 8601: the "
        "changes after it.",
    )
    behavior_on_rewrites: OnRewrite = setting(
        default=OnRewrite.FAIL,
        validator=CaseInsensitiveValidString("fail", "ignore"),
        doc="Versions that change or delete rows of a table without a change data feed. fail: the table is not read "
        "any further. ignore: they are passed over.",
    )
    poll_interval_ms: int = setting(
        default=5000,
        type=ConfigType.LONG,
        validator=Range.at_least(1),
        doc="How often the tables are asked for new versions.",
    )
    batch_max_rows: int = setting(default=10_000, validator=Range.at_least(1), doc="The rows of one poll, at most.")

    @classmethod
    def parse(cls, properties: Mapping[str, object], *, resolve_class: ClassResolver | None = None) -> Self:
        """See ``AbstractConfig``; also checks if the settings fit together.

        Raises:
            ConfigException: A setting is missing or wrong, or two do not fit together.
        """
        config = super().parse(with_own_names(properties), resolve_class=resolve_class)
        for name, text in config.faults():
            raise ConfigException(f"{name}: {text}")
        return config

    def faults(self) -> list[tuple[str, str]]:
        """Names of settings that do not fit others, each with a text for people."""
        found = self.lake_faults()
        if not self.tables:
            found.append(("tables", "names at least one table"))
        if self.start_from not in ("snapshot", "latest") and self.start_version is None and self.start_time is None:
            found.append(("start.from", "is snapshot, latest, a number, or a time such as 2026-01-31T12:00:00Z"))
        return found

    @property
    def start_version(self) -> int | None:
        """The version or snapshot of ``start.from``."""
        text = self.start_from
        return int(text) if text.isascii() and text.isdigit() else None

    @property
    def start_time(self) -> datetime.datetime | None:
        """The time of ``start.from``; UTC if it has no zone."""
        if self.start_version is not None:
            return None
        try:
            found = datetime.datetime.fromisoformat(self.start_from)
        except ValueError:
            return None
        return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)
