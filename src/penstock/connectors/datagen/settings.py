"""Settings of the source: `DatagenConfig`. Values; any thread.

Source: the settings of io.confluent.kafka.connect.datagen.DatagenConnector.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from penstock.config import (
    AbstractConfig,
    CaseInsensitiveValidString,
    ClassResolver,
    ConfigType,
    Importance,
    LambdaValidator,
    Range,
    setting,
)
from penstock.connectors.datagen.columns import RecordGenerator
from penstock.connectors.datagen.quickstarts import QUICKSTARTS
from penstock.connectors.datagen.schemas import records_of
from penstock.errors import ConfigException

_NAMES: Final = CaseInsensitiveValidString(*QUICKSTARTS)


def _ensure_quickstart(name: str, value: object) -> None:
    if value is not None:
        _NAMES.ensure_valid(name, value)


class DatagenConfig(AbstractConfig):
    """The settings of the source."""

    kafka_topic: str = setting(importance=Importance.HIGH, doc="The topic that the records go to.")
    quickstart: str | None = setting(
        default=None,
        validator=LambdaValidator(_ensure_quickstart, f"one of {', '.join(QUICKSTARTS)}"),
        importance=Importance.HIGH,
        doc=f"The shape of the records: {', '.join(QUICKSTARTS)}. Or set schema.string or schema.filename.",
    )
    schema_string: str | None = setting(
        default=None,
        importance=Importance.HIGH,
        doc="An Avro schema of a record, as JSON, with arg.properties that say how values are made.",
    )
    schema_filename: str | None = setting(
        default=None, importance=Importance.HIGH, doc="A file of the worker with such a schema."
    )
    schema_keyfield: str | None = setting(
        default=None,
        importance=Importance.HIGH,
        doc="The field that is the key of the record, too. Left out: that of the quickstart; records of a schema of "
        "your own have no key then.",
    )
    max_interval: int = setting(
        type=ConfigType.LONG,
        default=500,
        validator=Range.at_least(0),
        importance=Importance.HIGH,
        doc="The longest time between two records of a task, in milliseconds; on average it is half of that. 0: as "
        "fast as they can be made.",
    )
    rate: int = setting(
        type=ConfigType.LONG,
        default=0,
        validator=Range.at_least(0),
        doc="Records a second of each task, in place of max.interval. 0: max.interval says it.",
    )
    iterations: int = setting(
        type=ConfigType.LONG,
        default=-1,
        validator=Range.at_least(-1),
        importance=Importance.HIGH,
        doc="How many records each task makes in all, across restarts; -1: no end. The task then stays idle.",
    )
    random_seed: int | None = setting(
        type=ConfigType.LONG,
        default=None,
        doc="With the same seed a task makes the same records again. Left out: by chance, and kept with the offset.",
    )
    batch_rows: int = setting(
        default=50_000,
        validator=Range.between(1, 1_000_000),
        importance=Importance.LOW,
        doc="The most records that are made at once.",
    )

    @classmethod
    def parse(cls, properties: Mapping[str, object], *, resolve_class: ClassResolver | None = None) -> Self:
        """See ``AbstractConfig``; also checks which settings fit together.

        Raises:
            ConfigException: A setting is missing or wrong, or two do not fit together.
        """
        config = super().parse(properties, resolve_class=resolve_class)
        for name, text in config.faults():
            raise ConfigException(f"{name}: {text}")
        return config

    def faults(self) -> list[tuple[str, str]]:
        """Names of settings that do not fit, each with a text for people."""
        given = [
            name
            for name, value in (
                ("quickstart", self.quickstart),
                ("schema.string", self.schema_string),
                ("schema.filename", self.schema_filename),
            )
            if value
        ]
        if len(given) != 1:
            found = f"{' and '.join(given)} are set" if given else "none is set"
            return [
                (
                    given[-1] if given else "quickstart",
                    f"set one of quickstart, schema.string, schema.filename; {found}",
                )
            ]
        try:
            records = self.records()
        except ConfigException as error:
            return [(given[0], str(error))]
        if self.key_field is not None and self.key_field not in records.names:
            text = f"there is no field {self.key_field!r}; the record has {', '.join(records.names)}"
            return [("schema.keyfield", text)]
        return []

    @property
    def key_field(self) -> str | None:
        """The field of the key; None = records without key."""
        if self.schema_keyfield:
            return self.schema_keyfield
        return QUICKSTARTS[self.quickstart.lower()][1] if self.quickstart else None

    @property
    def per_second(self) -> float | None:
        """Records a second of a task; None = as many as can be."""
        if self.rate:
            return float(self.rate)
        return 2000.0 / self.max_interval if self.max_interval else None

    def records(self) -> RecordGenerator:
        """Returns the generator of the records.

        Raises:
            ConfigException: The file cannot be read, or its schema cannot be used for records.
        """
        if self.quickstart:
            return records_of(QUICKSTARTS[self.quickstart.lower()][0])
        text = self.schema_string
        if not text:
            text = _read(str(self.schema_filename))
        try:
            schema: Any = json.loads(text)
        except ValueError as error:
            raise ConfigException(f"the schema is no JSON: {error}") from error
        return records_of(schema)


def _read(filename: str) -> str:
    try:
        return Path(filename).read_text("utf-8")
    except (OSError, ValueError) as error:
        raise ConfigException(
            f"cannot read the file {filename!r}: {error}. It must be on the worker's machine, or on each of a cluster"
        ) from error
