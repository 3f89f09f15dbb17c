"""StringConverter: text. Class ``StringConverter``, for keys, values and headers.

Thread: one instance a task; steps are built on its pipeline thread.
Source: org.apache.kafka.connect.storage.StringConverter.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from penstock.api import Converter, HeaderConverter
from penstock.config import ConfigDef, Importance, Width, setting
from penstock.converters.character_sets import decode_text, decoded, encode_text, encoded, find_encoding
from penstock.converters.settings import TYPE_CONFIG, ConverterConfig, use_of
from penstock.data import OPTIONAL_STRING_SCHEMA, ConnectHeaders, Schema, SchemaAndValue
from penstock.data.text import to_java_text
from penstock.pipeline.plan.java_text import java_text
from penstock.pipeline.plan.step import (
    NOTHING,
    RAW,
    RAW_TEXT,
    Bag,
    ColumnConverter,
    Keep,
    Made,
    Shape,
    Side,
    SideName,
    Step,
    StepPlan,
)


class StringConverterConfig(ConverterConfig):
    """The settings of ``StringConverter``."""

    converter_encoding: str = setting(
        default="UTF-8",
        importance=Importance.HIGH,
        doc="The name of the Java character set to use for encoding strings as byte arrays.",
        width=Width.MEDIUM,
        display_name="Encoding",
    )


@dataclass(frozen=True)
class WriteText(Step):
    """Writes one side as Java's text of it."""

    side: SideName
    encoding: str

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``. A side that no record has stays null."""
        known = shape.side(self.side)
        if known.absent:
            return StepPlan(shape.with_side(self.side, NOTHING))

        def make(bag: Bag, keep: Keep) -> Made:
            text = keep(java_text(bag.side(self.side), known.carrier, known.physical))
            return Made({self.side: encoded(text, self.encoding)})

        names = frozenset({self.side})
        return StepPlan(shape.with_side(self.side, RAW), make, names, names)


@dataclass(frozen=True)
class ReadText(Step):
    """Reads one side as text; bytes that are none become U+FFFD."""

    side: SideName
    encoding: str

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``. UTF-8 that the task takes as bytes (``RAW_TEXT``) is handed on as it is."""

        def make(bag: Bag, keep: Keep) -> Made:
            data = bag.side(self.side)
            if self.encoding == "UTF-8" and shape.side(self.side) == RAW_TEXT:
                return Made({self.side: data})
            return Made({self.side: decoded(data, self.encoding)})

        side = Side.of(OPTIONAL_STRING_SCHEMA)
        names = frozenset({self.side})
        return StepPlan(shape.with_side(self.side, side), make, names, names)


class StringConverter(ColumnConverter, Converter, HeaderConverter):
    """Text in ``converter.encoding`` (UTF-8); any value is written as Java's ``toString`` of it."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.storage.StringConverter"
    ignores_schema: ClassVar[bool] = True

    def __init__(self) -> None:
        self._encoding = "UTF-8"

    def configure(self, configs: Mapping[str, object], is_key: bool | None = None) -> None:
        """See ``Converter``."""
        config = StringConverterConfig.parse({**configs, TYPE_CONFIG: use_of(is_key)})
        self._encoding = find_encoding(config.converter_encoding)

    def config(self) -> ConfigDef:
        """See ``Converter``."""
        return StringConverterConfig.definition()

    @property
    def reads_text(self) -> bool:
        """See ``ColumnConverter``. True for UTF-8."""
        return self._encoding == "UTF-8"

    def writing(self, side: SideName) -> Step:
        """See ``ColumnConverter``."""
        return WriteText(side, self._encoding)

    def reading(self, side: SideName, hint: Hashable) -> Step:
        """See ``ColumnConverter``. All messages are read alike, so there is no hint."""
        return ReadText(side, self._encoding)

    def from_connect_data(
        self, topic: str, schema: Schema | None, value: object, headers: ConnectHeaders | None = None
    ) -> bytes | None:
        """See ``Converter``."""
        return None if value is None else encode_text(to_java_text(value, schema), self._encoding)

    def to_connect_data(self, topic: str, data: bytes | None, headers: ConnectHeaders | None = None) -> SchemaAndValue:
        """See ``Converter``. The schema is OPTIONAL_STRING_SCHEMA."""
        text = None if data is None else decode_text(data, self._encoding)
        return SchemaAndValue(OPTIONAL_STRING_SCHEMA, text)

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: object) -> bytes | None:
        """See ``HeaderConverter``. The same as ``from_connect_data``."""
        return self.from_connect_data(topic, schema, value)

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        """See ``HeaderConverter``. The same as ``to_connect_data``."""
        return self.to_connect_data(topic, data)
