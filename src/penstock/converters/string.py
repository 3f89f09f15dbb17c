"""Values as text: StringConverter, in any of Java's character sets that Python has a codec for; SimpleHeaderConverter.

The JVM encodes columns; settings and single values do not wait for a JVM.

The table has Java's names because configurations have them. Python's codecs know 295 of these 500 names, lack 27 of the
89 sets' own, and take some that Java refuses (`UTF_8`); the rules and exceptions would be as long as the table, which
is data that changes with no release.

Thread: one instance for each task; steps are built on its pipeline thread. The functions are pure.
Source: org.apache.kafka.connect.storage.StringConverter; java.nio.charset.Charset (names and aliases of JDK 17),
String.getBytes, the String constructors; org.apache.kafka.connect.storage.SimpleHeaderConverter.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa
from pyspark.sql import functions as F

from penstock.api import HeaderConverter
from penstock.config import ConfigDef, Importance, Width, setting
from penstock.converters.primitives import ConverterConfig, PlainConverter, ReadSide, WriteSide
from penstock.data import NULL_VALUE, OPTIONAL_STRING_SCHEMA, ConnectHeaders, Schema, SchemaAndValue, Values
from penstock.data.text import to_java_text
from penstock.errors import DataException, SerializationException
from penstock.pipeline.columns.expressions import apart
from penstock.pipeline.plan.frame_values import java_text
from penstock.pipeline.plan.step import (
    RAW_TEXT,
    NameColumn,
    ReadAtOnce,
    Shape,
    Side,
    SideName,
    Sorted,
    Step,
    StepFault,
    StepPlan,
)

if TYPE_CHECKING:
    from pyspark.sql import Column

UTF_8: Final = "UTF-8"

#: In each line Java's name, Python's codec, and Java's other names; case-insensitive.
_TABLE: Final = """
Big5 big5 csBig5
Big5-HKSCS big5hkscs Big5_HKSCS big5hk big5hkscs
CESU-8 cesu-8 CESU8 csCESU-8
EUC-JP euc_jp csEUCPkdFmtjapanese euc_jp eucjis eucjp Extended_UNIX_Code_Packed_Format_for_Japanese x-euc-jp x-eucjp
EUC-KR euc_kr 5601 csEUCKR euc_kr euckr ks_c_5601-1987 ksc5601 ksc5601-1987 ksc5601_1987 ksc_5601
GB18030 gb18030 gb18030-2022
GB2312 gb2312 euc-cn EUC_CN euccn gb2312-1980 gb2312-80 x-EUC-CN
GBK gbk CP936 windows-936
IBM00858 cp858 858 ccsid00858 cp00858 cp858 ibm-858 ibm858 PC-Multilingual-850+euro
IBM01140 cp1140 1140 ccsid01140 cp01140 cp1140 ebcdic-us-037+euro ibm-1140 ibm1140
IBM037 cp037 037 cp037 cpibm37 cs-ebcdic-cp-ca cs-ebcdic-cp-nl cs-ebcdic-cp-us cs-ebcdic-cp-wt csIBM037 \\
  ebcdic-cp-ca ebcdic-cp-nl ebcdic-cp-us ebcdic-cp-wt ibm-037 ibm-37
IBM1026 cp1026 1026 cp1026 ibm-1026
IBM273 cp273 273 cp273 ibm-273
IBM424 cp424 424 cp424 csIBM424 ebcdic-cp-he ibm-424
IBM437 cp437 437 cp437 cspc8codepage437 ibm-437 windows-437
IBM500 cp500 500 cp500 csIBM500 ebcdic-cp-bh ebcdic-cp-ch ibm-500
IBM775 cp775 775 cp775 ibm-775
IBM850 cp850 850 cp850 cspc850multilingual ibm-850
IBM852 cp852 852 cp852 csPCp852 ibm-852
IBM855 cp855 855 cp855 cspcp855 ibm-855
IBM857 cp857 857 cp857 csIBM857 ibm-857
IBM860 cp860 860 cp860 csIBM860 ibm-860
IBM861 cp861 861 cp-is cp861 csIBM861 ibm-861
IBM862 cp862 862 cp862 csIBM862 cspc862latinhebrew ibm-862
IBM863 cp863 863 cp863 csIBM863 ibm-863
IBM864 cp864 864 cp864 csIBM864 ibm-864
IBM865 cp865 865 cp865 csIBM865 ibm-865
IBM866 cp866 866 cp866 csIBM866 ibm-866
IBM869 cp869 869 cp-gr cp869 csIBM869 ibm-869
ISO-2022-JP iso2022_jp csISO2022JP csjisencoding iso2022jp jis jis_encoding
ISO-2022-JP-2 iso2022_jp_2 csISO2022JP2 iso2022jp2
ISO-2022-KR iso2022_kr csISO2022KR ISO2022KR
ISO-8859-1 iso8859_1 819 8859_1 cp819 csISOLatin1 IBM-819 IBM819 iso-ir-100 ISO8859-1 ISO8859_1 ISO_8859-1 \\
  ISO_8859-1:1987 ISO_8859_1 l1 latin1
ISO-8859-13 iso8859_13 8859_13 ISO8859-13 iso8859_13 iso_8859-13
ISO-8859-15 iso8859_15 8859_15 923 cp923 csISO885915 csISOlatin0 csISOlatin9 IBM-923 IBM923 ISO8859-15 ISO8859_15 \\
  ISO8859_15_FDIS ISO_8859-15 L9 Latin-9 LATIN0 LATIN9
ISO-8859-16 iso8859_16 csISO885916 iso-ir-226 ISO8859_16 ISO_8859-16 ISO_8859-16:2001 l10 latin10
ISO-8859-2 iso8859_2 8859_2 912 cp912 csISOLatin2 ibm-912 ibm912 iso-ir-101 ISO8859-2 iso8859_2 ISO_8859-2 \\
  ISO_8859-2:1987 l2 latin2
ISO-8859-3 iso8859_3 8859_3 913 cp913 csISOLatin3 ibm-913 ibm913 iso-ir-109 ISO8859-3 iso8859_3 ISO_8859-3 \\
  ISO_8859-3:1988 l3 latin3
ISO-8859-4 iso8859_4 8859_4 914 cp914 csISOLatin4 ibm-914 ibm914 iso-ir-110 iso8859-4 iso8859_4 ISO_8859-4 \\
  ISO_8859-4:1988 l4 latin4
ISO-8859-5 iso8859_5 8859_5 915 cp915 csISOLatinCyrillic cyrillic ibm-915 ibm915 iso-ir-144 ISO8859-5 iso8859_5 \\
  ISO_8859-5 ISO_8859-5:1988
ISO-8859-6 iso8859_6 1089 8859_6 arabic ASMO-708 cp1089 csISOLatinArabic ECMA-114 ibm-1089 ibm1089 iso-ir-127 \\
  ISO8859-6 iso8859_6 ISO_8859-6 ISO_8859-6:1987
ISO-8859-7 iso8859_7 813 8859_7 cp813 csISOLatinGreek ECMA-118 ELOT_928 greek greek8 ibm-813 ibm813 iso-ir-126 \\
  iso8859-7 iso8859_7 ISO_8859-7 ISO_8859-7:1987 sun_eu_greek
ISO-8859-8 iso8859_8 8859_8 916 cp916 csISOLatinHebrew hebrew ibm-916 ibm916 iso-ir-138 ISO8859-8 iso8859_8 \\
  ISO_8859-8 ISO_8859-8:1988
ISO-8859-9 iso8859_9 8859_9 920 cp920 csISOLatin5 ibm-920 ibm920 iso-ir-148 ISO8859-9 iso8859_9 ISO_8859-9 \\
  ISO_8859-9:1989 l5 latin5
KOI8-R koi8_r cskoi8r koi8 koi8_r
KOI8-U koi8_u koi8_u
Shift_JIS shift_jis csShiftJIS ms_kanji shift-jis sjis x-sjis
TIS-620 tis_620 tis620 tis620.2533
US-ASCII ascii 646 ANSI_X3.4-1968 ANSI_X3.4-1986 ASCII ascii7 cp367 csASCII default IBM367 iso-ir-6 ISO646-US \\
  iso_646.irv:1983 ISO_646.irv:1991 us
UTF-16 utf-16 unicode UnicodeBig utf16 UTF_16
UTF-16BE utf-16-be ISO-10646-UCS-2 UnicodeBigUnmarked UTF_16BE X-UTF-16BE
UTF-16LE utf-16-le UnicodeLittleUnmarked UTF_16LE X-UTF-16LE
UTF-32 utf-32 UTF32 UTF_32
UTF-32BE utf-32-be UTF_32BE X-UTF-32BE
UTF-32LE utf-32-le UTF_32LE X-UTF-32LE
UTF-8 utf-8 unicode-1-1-utf-8 UTF8
windows-1250 cp1250 cp1250 cp5346
windows-1251 cp1251 ansi-1251 cp1251 cp5347
windows-1252 cp1252 cp1252 cp5348 ibm-1252 ibm1252
windows-1253 cp1253 cp1253 cp5349
windows-1254 cp1254 cp1254 cp5350
windows-1255 cp1255 cp1255
windows-1256 cp1256 cp1256
windows-1257 cp1257 cp1257 cp5353
windows-1258 cp1258 cp1258
windows-31j cp932 csWindows31J MS932 windows-932
x-IBM1006 cp1006 1006 cp1006 ibm-1006 ibm1006
x-IBM737 cp737 737 cp737 ibm-737 ibm737
x-IBM856 cp856 856 cp856 ibm-856 ibm856
x-IBM875 cp875 875 cp875 ibm-875 ibm875
x-IBM921 iso8859_13 921 cp921 ibm-921 ibm921
x-iso-8859-11 iso8859_11 iso-8859-11 iso8859_11
x-Johab johab johab ksc5601-1992 ksc5601_1992 ms1361
x-MacCentralEurope mac_latin2 MacCentralEurope
x-MacCroatian mac_croatian MacCroatian
x-MacCyrillic mac_cyrillic MacCyrillic
x-MacGreek mac_greek MacGreek
x-MacIceland mac_iceland MacIceland
x-MacRoman mac_roman MacRoman
x-MacRomania mac_romanian MacRomania
x-MacTurkish mac_turkish MacTurkish
x-MacUkraine mac_cyrillic MacUkraine
x-SJIS_0213 shift_jis_2004 shift_jis:2004 shift_jis_0213:2004 sjis-0213 sjis:2004 sjis_0213 sjis_0213:2004
x-UTF-16LE-BOM utf-16-le UnicodeLittle
X-UTF-32BE-BOM utf-32-be UTF-32BE-BOM UTF_32BE_BOM
X-UTF-32LE-BOM utf-32-le UTF-32LE-BOM UTF_32LE_BOM
x-windows-874 cp874 ms-874 ms874 windows-874
x-windows-949 cp949 ms949 ms_949 windows-949 windows949
x-windows-950 cp950 ms950 windows-950
"""
_CODECS: Final[dict[str, str]] = {}
_NAMES: Final[dict[str, str]] = {}
for _line in _TABLE.strip().replace("\\\n", "").splitlines():
    _name, _codec, *_aliases = _line.split()
    _CODECS[_name] = _codec
    _NAMES.update(dict.fromkeys(map(str.lower, (_name, *_aliases)), _name))

#: Byte order marks: they count when reading, and some character sets are written with one.
_MARKS: Final = {
    "UTF-16": {codecs.BOM_UTF16_BE: "utf-16-be", codecs.BOM_UTF16_LE: "utf-16-le"},
    "x-UTF-16LE-BOM": {codecs.BOM_UTF16_BE: "utf-16-be", codecs.BOM_UTF16_LE: "utf-16-le"},
    "UTF-32": {codecs.BOM_UTF32_BE: "utf-32-be", codecs.BOM_UTF32_LE: "utf-32-le"},
    "X-UTF-32BE-BOM": {codecs.BOM_UTF32_BE: "utf-32-be", codecs.BOM_UTF32_LE: "utf-32-le"},
    "X-UTF-32LE-BOM": {codecs.BOM_UTF32_BE: "utf-32-be", codecs.BOM_UTF32_LE: "utf-32-le"},
}
_WRITTEN_MARKS: Final = {
    "UTF-16": codecs.BOM_UTF16_BE,
    "x-UTF-16LE-BOM": codecs.BOM_UTF16_LE,
    "X-UTF-32BE-BOM": codecs.BOM_UTF32_BE,
    "X-UTF-32LE-BOM": codecs.BOM_UTF32_LE,
}
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SURROGATE_BYTES: Final = re.compile(b"\xed[\xa0-\xbf][\x80-\xbf]?")
_PAIR_BYTES: Final = re.compile(b"\xed[\xa0-\xaf][\x80-\xbf]\xed[\xb0-\xbf][\x80-\xbf]")
#: The same marks in hexadecimal, after texts without one.
_SURROGATE_HEX: Final = "\\G((?:(?!ED[AB])[0-9A-F]{2})*+)ED[AB][0-9A-F](?:[89AB][0-9A-F])?+"


def find_encoding(name: str) -> str:
    """The JVM's name of a character set.

    Raises:
        SerializationException: Java has no character set with this name, or Python has no codec for it.
    """
    known = _NAMES.get(name.lower())
    if known is None:
        raise SerializationException(f"Unsupported encoding {name}")
    return known


def encode_text(text: str, encoding: str = UTF_8) -> bytes:
    """Encodes a text in a character set of ``find_encoding`` like Java's ``String.getBytes``."""
    if encoding == "CESU-8":
        units = _SURROGATE.sub("?", text).encode("utf-16-be")
        return b"".join(
            chr(units[at] << 8 | units[at + 1]).encode("utf-8", "surrogatepass") for at in range(0, len(units), 2)
        )
    codec = _CODECS[encoding]
    wide = codec.startswith(("utf-16", "utf-32"))
    if codec in ("utf-16", "utf-32"):
        codec += "-be"
    data = _SURROGATE.sub("\ufffd" if wide else "?", text).encode(codec, "replace")
    return _WRITTEN_MARKS.get(encoding, b"") + data


def decode_text(data: bytes, encoding: str = UTF_8) -> str:
    """Decodes bytes in a character set of ``find_encoding`` like Java's ``String``."""
    if encoding == UTF_8:
        try:
            return data.decode()
        except UnicodeDecodeError:
            return _SURROGATE_BYTES.sub(b"\xef\xbf\xbd", data).decode("utf-8", "replace")
    if encoding == "CESU-8":
        return _PAIR_BYTES.sub(_joined, data).decode("utf-8", "replace")
    codec = _CODECS[encoding]
    for mark, marked in _MARKS.get(encoding, {}).items():
        if data.startswith(mark):
            return data[len(mark) :].decode(marked, "replace")
    return data.decode(f"{codec}-be" if codec in ("utf-16", "utf-32") else codec, "replace")


def _joined(pair: re.Match[bytes]) -> bytes:
    return pair[0].decode("utf-8", "surrogatepass").encode("utf-16", "surrogatepass").decode("utf-16").encode()


def encoded(text: Column, encoding: str) -> Column:
    """Encodes texts like ``encode_text``. ``text`` is used several times: name it first."""
    if encoding != UTF_8:
        return F.encode(text, encoding)
    # Half of a surrogate pair passes through Arrow and Spark as its three bytes.
    return F.when(F.is_valid_utf8(text), text.cast("binary")).otherwise(
        apart(text, lambda one: _without_surrogates(one.cast("binary"), "3F"))
    )


def decoded(data: Column, encoding: str) -> Column:
    """Decodes texts like ``decode_text``. ``data`` is used several times."""
    if encoding != UTF_8:
        return F.decode(data, encoding)
    text = data.cast("string")

    def repaired(one: Column) -> Column:
        return F.make_valid_utf8(_without_surrogates(one, "EFBFBD").cast("string"))

    return F.when(F.is_valid_utf8(text), text).otherwise(apart(data, repaired))


def _without_surrogates(data: Column, replacement: str) -> Column:
    return F.unhex(F.regexp_replace(F.hex(data), _SURROGATE_HEX, f"$1{replacement}"))


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
    """Writes keys or values as Java's text of them."""

    encoding: str

    def written(self, column: Column, known: Side, keep: NameColumn) -> tuple[Column, *tuple[StepFault, ...]]:
        return (encoded(keep(java_text(column, known.carrier, known.physical)), self.encoding),)


@dataclass(frozen=True)
class ReadText(ReadSide):
    """Reads keys or values as text; invalid bytes become U+FFFD."""

    encoding: str
    schema = OPTIONAL_STRING_SCHEMA

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``. UTF-8 passes unchanged: as text that the converter has read, or as ``RAW_TEXT``."""
        known, text = shape.side(self.side), Side.of(self.schema)
        if known == text or (self.encoding == "UTF-8" and known == RAW_TEXT):
            return StepPlan(shape.with_side(self.side, text), reads=frozenset({self.side}))
        return super().plan(shape)

    def values(self, data: Column, known: Side) -> tuple[Column, *tuple[StepFault, ...]]:
        return (decoded(data, self.encoding),)


class StringConverter(PlainConverter):
    """Text in any of Java's character sets that Python has a codec for.

    Writes any value as Java's ``toString``.
    """

    java_name: ClassVar[str] = "org.apache.kafka.connect.storage.StringConverter"
    #: Headers of frames then need no check.
    reads_any_bytes: ClassVar[bool] = True
    ignores_schema: ClassVar[bool] = True
    settings = StringConverterConfig

    def __init__(self) -> None:
        self._encoding = "UTF-8"

    def take(self, config: ConverterConfig) -> None:
        assert isinstance(config, StringConverterConfig)
        self._encoding = find_encoding(config.converter_encoding)

    @property
    def reads_text(self) -> bool:
        """See ``ColumnConverter``. True for UTF-8."""
        return self._encoding == "UTF-8"

    def writing(self, side: SideName) -> Step:
        return WriteText(side, self._encoding)

    def reading(self, side: SideName, hint: Hashable) -> Step:
        return ReadText(side, self._encoding)

    def sort(self, column: pa.ChunkedArray, *, worked_on: bool, beside_spark: bool) -> Sorted:
        """See ``ColumnConverter``. Messages in valid UTF-8 are already text."""
        if beside_spark and self.reads_text:
            try:
                return Sorted((None,), read={0: (Side.of(OPTIONAL_STRING_SCHEMA), column.cast(pa.string()))})
            except pa.ArrowInvalid:
                pass
        return Sorted((None,))

    def read_at_once(self, column: pa.ChunkedArray) -> ReadAtOnce | None:
        """See ``ColumnConverter``. All messages, if all are valid UTF-8."""
        if not self.reads_text:
            return None
        try:
            return ReadAtOnce(OPTIONAL_STRING_SCHEMA, column.cast(pa.string()).to_pylist())
        except pa.ArrowInvalid:
            return None

    def from_connect_data(
        self, topic: str, schema: Schema | None, value: object, headers: ConnectHeaders | None = None
    ) -> bytes | None:
        return None if value is None else encode_text(to_java_text(value, schema), self._encoding)

    def to_connect_data(self, topic: str, data: bytes | None, headers: ConnectHeaders | None = None) -> SchemaAndValue:
        text = None if data is None else decode_text(data, self._encoding)
        return SchemaAndValue(OPTIONAL_STRING_SCHEMA, text)


CONFIG: Final = ConfigDef()


class SimpleHeaderConverter(HeaderConverter):
    """Header values as plain text; their schema is inferred from the text."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
    #: Headers of frames then need no check.
    reads_any_bytes: ClassVar[bool] = True

    def configure(self, configs: Mapping[str, object]) -> None:
        """Takes no settings."""

    def config(self) -> ConfigDef:
        return CONFIG

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: object) -> bytes | None:
        if value is None:
            return None
        text = Values.convert_to_string(schema, value)
        return None if text is None else encode_text(text)

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        """See ``HeaderConverter``. Bytes that are not text stay bytes, without a schema."""
        if data is None:
            return NULL_VALUE
        try:
            # Java's parser returns no value for the text null; its header then contains null.
            return Values.parse_string(decode_text(data)) or NULL_VALUE
        except (DataException, ValueError):
            return SchemaAndValue(None, data)
