"""StringConverter: text. Class ``StringConverter``, for keys, values and headers.

Thread: one instance a task; steps are built on its pipeline thread.
Source: org.apache.kafka.connect.storage.StringConverter.
"""

from __future__ import annotations

import codecs
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, cast

from pyspark.sql import functions as F

from penstock.api import Converter, HeaderConverter
from penstock.config import ConfigDef, ConfigType, Importance, Width
from penstock.converters.settings import TYPE_CONFIG, define_type, use_of
from penstock.data import OPTIONAL_STRING_SCHEMA, ConnectHeaders, Schema, SchemaAndValue
from penstock.data.text import to_java_text
from penstock.errors import SerializationException
from penstock.pipeline.java_text import java_text
from penstock.pipeline.step import (
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

if TYPE_CHECKING:
    from pyspark.sql import Column

CONFIG: Final = define_type(ConfigDef()).define(
    "converter.encoding",
    ConfigType.STRING,
    default="UTF-8",
    importance=Importance.HIGH,
    doc="The name of the Java character set to use for encoding strings as byte arrays.",
    width=Width.MEDIUM,
    display_name="Encoding",
)
#: The JVM's names of character sets, by Python's.
_JVM_NAMES: Final = {
    "ascii": "US-ASCII",
    "utf-16-be": "UTF-16BE",
    "utf-16-le": "UTF-16LE",
    "utf-32-be": "UTF-32BE",
    "utf-32-le": "UTF-32LE",
    "shift_jis": "Shift_JIS",
    "euc_jp": "EUC-JP",
    "euc_kr": "EUC-KR",
    "iso2022_jp": "ISO-2022-JP",
    **{f"iso8859-{number}": f"ISO-8859-{number}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 15, 16)},
    **{f"cp{number}": f"windows-{number}" for number in range(1250, 1259)},
    **{f"cp{number}": f"IBM{number}" for number in (437, 737, 775, 850, 852, 855, 857, 862, 866)},
    **{name: name.upper() for name in ("utf-8", "utf-16", "utf-32", "koi8-r", "koi8-u", "gb2312", "gbk", "gb18030")},
    "big5": "Big5",
}
#: What may stand in front and tell the order of bytes.
_BYTE_ORDER_MARKS: Final = {
    "UTF-16": (codecs.BOM_UTF16_BE, codecs.BOM_UTF16_LE),
    "UTF-32": (codecs.BOM_UTF32_BE, codecs.BOM_UTF32_LE),
}
#: Character sets that the JVM writes with the high byte first, and what it writes in front; Python takes the order of
#: the machine.
_BIG_ENDIAN: Final = {"UTF-16": ("utf-16-be", b"\xfe\xff"), "UTF-32": ("utf-32-be", b"")}


def find_encoding(name: str) -> str:
    """The JVM's name of a character set.

    Raises:
        SerializationException: There is none of that name.
    """
    try:
        known = _JVM_NAMES.get(codecs.lookup(name).name) if name else None
    except LookupError:
        known = None
    if known is None:
        raise SerializationException(f"Unsupported encoding {name}")
    return known


def encode_text(text: str, encoding: str) -> bytes:
    """A text in a character set of ``find_encoding``, as Java's ``String.getBytes`` gives it."""
    name, mark = _BIG_ENDIAN.get(encoding, (encoding, b""))
    return mark + text.encode(name, "replace")


def decode_text(data: bytes, encoding: str) -> str:
    """The text of bytes in a character set of ``find_encoding``, as Java's ``String`` reads it."""
    name, _ = _BIG_ENDIAN.get(encoding, (encoding, b""))
    marked = encoding in _BIG_ENDIAN and data.startswith(_BYTE_ORDER_MARKS[encoding])
    return data.decode(encoding if marked else name, "replace")


@dataclass(frozen=True)
class WriteText(Step):
    """Writes one side as Java's text of it."""

    side: SideName
    encoding: str

    def takes_objects(self, shape: Shape) -> bool:
        return True

    def plan(self, shape: Shape) -> StepPlan:
        known = shape.side(self.side)
        if known.absent:
            return StepPlan(shape.with_side(self.side, NOTHING))

        def make(bag: Bag, keep: Keep) -> Made:
            column = keep(bag.side(self.side)) if known.is_variant else bag.side(self.side)
            return Made({self.side: self._encoded(java_text(column, known.carrier, known.physical))})

        names = frozenset({self.side})
        return StepPlan(shape.with_side(self.side, RAW), make, names, names)

    def _encoded(self, text: Column) -> Column:
        return text.cast("binary") if self.encoding == "UTF-8" else F.encode(text, self.encoding)


@dataclass(frozen=True)
class ReadText(Step):
    """Reads one side as text; bytes that are none become U+FFFD."""

    side: SideName
    encoding: str

    def plan(self, shape: Shape) -> StepPlan:
        def make(bag: Bag, keep: Keep) -> Made:
            data = bag.side(self.side)
            if self.encoding != "UTF-8":
                return Made({self.side: F.decode(data, self.encoding)})
            if shape.side(self.side) == RAW_TEXT:
                return Made({self.side: data})
            return Made({self.side: F.make_valid_utf8(data.cast("string"))})

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
        values = CONFIG.parse({TYPE_CONFIG: use_of(is_key), **configs})
        self._encoding = find_encoding(cast("str", values["converter.encoding"]))

    def config(self) -> ConfigDef:
        return CONFIG

    @property
    def reads_text(self) -> bool:
        return self._encoding == "UTF-8"

    def writing(self, side: SideName) -> Step:
        return WriteText(side, self._encoding)

    def reading(self, side: SideName, hint: Hashable) -> Step:
        return ReadText(side, self._encoding)

    def from_connect_data(
        self, topic: str, schema: Schema | None, value: object, headers: ConnectHeaders | None = None
    ) -> bytes | None:
        return None if value is None else encode_text(to_java_text(value, schema), self._encoding)

    def to_connect_data(self, topic: str, data: bytes | None, headers: ConnectHeaders | None = None) -> SchemaAndValue:
        text = None if data is None else decode_text(data, self._encoding)
        return SchemaAndValue(OPTIONAL_STRING_SCHEMA, text)

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: object) -> bytes | None:
        return self.from_connect_data(topic, schema, value)

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        return self.to_connect_data(topic, data)
