"""StringConverter: text. Class ``StringConverter``, for keys, values and headers.

Thread: one instance a task; steps are built on its pipeline thread.
Source: org.apache.kafka.connect.storage.StringConverter.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from penstock.config import Importance, Width, setting
from penstock.converters.character_sets import decode_text, decoded, encode_text, encoded, find_encoding
from penstock.converters.plain import PlainConverter, ReadSide, WriteSide
from penstock.converters.settings import ConverterConfig
from penstock.data import OPTIONAL_STRING_SCHEMA, ConnectHeaders, Schema, SchemaAndValue
from penstock.data.text import to_java_text
from penstock.pipeline.plan.java_text import java_text
from penstock.pipeline.plan.step import (
    RAW_TEXT,
    Fault,
    Keep,
    ReadAtOnce,
    Shape,
    Side,
    SideName,
    Sorted,
    Step,
    StepPlan,
)

if TYPE_CHECKING:
    from pyspark.sql import Column


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
class WriteText(WriteSide):
    """Writes one side as Java's text of it."""

    encoding: str

    def written(self, column: Column, known: Side, keep: Keep) -> tuple[Column, *tuple[Fault, ...]]:
        """See ``WriteSide``."""
        return (encoded(keep(java_text(column, known.carrier, known.physical)), self.encoding),)


@dataclass(frozen=True)
class ReadText(ReadSide):
    """Reads one side as text; bytes that are none become U+FFFD."""

    encoding: str
    schema = OPTIONAL_STRING_SCHEMA

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``. UTF-8 is handed on as it is: as text that the converter has read, or as ``RAW_TEXT``."""
        known, text = shape.side(self.side), Side.of(self.schema)
        if known == text or (self.encoding == "UTF-8" and known == RAW_TEXT):
            return StepPlan(shape.with_side(self.side, text), reads=frozenset({self.side}))
        return super().plan(shape)

    def values(self, data: Column, known: Side) -> tuple[Column, *tuple[Fault, ...]]:
        """See ``ReadSide``."""
        return (decoded(data, self.encoding),)


class StringConverter(PlainConverter):
    """Text in ``converter.encoding`` (UTF-8); any value is written as Java's ``toString`` of it."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.storage.StringConverter"
    #: Headers of frames need no look then.
    reads_any_bytes: ClassVar[bool] = True
    ignores_schema: ClassVar[bool] = True
    settings = StringConverterConfig

    def __init__(self) -> None:
        self._encoding = "UTF-8"

    def take(self, config: ConverterConfig) -> None:
        """See ``PlainConverter``."""
        assert isinstance(config, StringConverterConfig)
        self._encoding = find_encoding(config.converter_encoding)

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

    def sort(self, column: pa.ChunkedArray, *, worked_on: bool, beside_spark: bool) -> Sorted:
        """See ``ColumnConverter``. Messages that are all UTF-8 are text already."""
        if beside_spark and self.reads_text:
            try:
                return Sorted((None,), read={0: (Side.of(OPTIONAL_STRING_SCHEMA), column.cast(pa.string()))})
            except pa.ArrowInvalid:
                pass
        return Sorted((None,))

    def read_at_once(self, column: pa.ChunkedArray) -> ReadAtOnce | None:
        """See ``ColumnConverter``. All messages, if all of them are UTF-8."""
        if not self.reads_text:
            return None
        try:
            return ReadAtOnce(OPTIONAL_STRING_SCHEMA, column.cast(pa.string()).to_pylist())
        except pa.ArrowInvalid:
            return None

    def from_connect_data(
        self, topic: str, schema: Schema | None, value: object, headers: ConnectHeaders | None = None
    ) -> bytes | None:
        """See ``Converter``."""
        return None if value is None else encode_text(to_java_text(value, schema), self._encoding)

    def to_connect_data(self, topic: str, data: bytes | None, headers: ConnectHeaders | None = None) -> SchemaAndValue:
        """See ``Converter``. The schema is OPTIONAL_STRING_SCHEMA."""
        text = None if data is None else decode_text(data, self._encoding)
        return SchemaAndValue(OPTIONAL_STRING_SCHEMA, text)
