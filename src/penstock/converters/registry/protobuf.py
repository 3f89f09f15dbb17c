"""ProtobufConverter: Protobuf with its schema in the schema registry. Class ``ProtobufConverter``.

Record by record, in Python: Spark's ``from_protobuf`` and ``to_protobuf`` need jars that it does not come with, and
which schema and message type a message has stands in its first bytes. Message types are compiled once for each id, so a
message costs the protobuf library's parser in C and one function call for each of its values.

Thread: a task's pipeline thread.
Source: io.confluent.connect.protobuf.ProtobufConverter, ProtobufDataConfig.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from penstock.config import ConfigDef, ConfigType
from penstock.converters.registry.base import RegistryConverter
from penstock.converters.registry.client import SchemaText, TextForm
from penstock.converters.registry.protobuf_names import ProtobufOptions
from penstock.converters.registry.settings import define_registry
from penstock.data import Schema, SchemaAndValue
from penstock.errors import ConfigException, DataException

if TYPE_CHECKING:
    from penstock.converters.registry.protobuf_codec import ProtobufCodec

_GROUP: Final = "Protobuf"
#: No .proto text is written like this: those have spaces.
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_MISSING: Final = "ProtobufConverter needs more packages ({error}): pip install penstock[registry]"
#: Settings, defaults, the fields of ``ProtobufOptions``, and what they do.
_SETTINGS: Final = (
    ("enhanced.protobuf.schema.support", False, "full_names", "Whether names of schemas have their package."),
    ("scrub.invalid.names", False, "scrub_names", "Replace what Protobuf does not take in names."),
    ("int.for.enums", False, "int_for_enums", "Whether enums are read as numbers instead of symbols."),
    ("optional.for.nullables", False, "optional_for_nullables", "Whether optional fields have the word optional, so "
     "that a null is told from a zero; fields without it are required."),
    ("optional.for.proto2", True, "optional_for_proto2", "Whether optional counts in proto2 files too."),
    ("wrapper.for.nullables", False, "wrapper_for_nullables", "Whether optional fields are wrapper messages, such as "
     "google.protobuf.Int32Value."),
    ("wrapper.for.raw.primitives", True, "wrapper_for_primitives", "Whether a wrapper message alone is read as the "
     "value it holds."),
    ("generate.struct.for.nulls", False, "struct_for_nulls", "Whether messages that are not set are read as structs of "
     "defaults."),
    ("generate.index.for.unions", True, "index_for_unions", "Whether the fields of oneofs have their index in their "
     "name."),
    ("flatten.unions", False, "flatten_unions", "Whether the members of oneofs are fields of the struct itself."),
    ("generalized.sum.type.support", False, "general_sums", "Give enums and unions names that converters of all "
     "formats know."),
    ("ignore.default.for.nullables", False, "ignore_defaults", "Write a null as null although its field has a "
     "default."),
)  # fmt: skip


def _definition() -> ConfigDef:
    definition = define_registry()
    for name, default, _, doc in _SETTINGS:
        definition.define(name, ConfigType.BOOLEAN, default=default, doc=doc, group=_GROUP)
    return definition


class ProtobufConverter(RegistryConverter["ProtobufCodec"]):
    """Protobuf with its schema in the registry."""

    java_name: ClassVar[str] = "io.confluent.connect.protobuf.ProtobufConverter"
    format: ClassVar[str] = "PROTOBUF"
    text_form: ClassVar[TextForm | None] = TextForm(
        "PROTOBUF", "serialized", lambda text: bool(_BASE64.fullmatch(text))
    )
    definition: ClassVar[ConfigDef] = _definition()

    def __init__(self) -> None:
        super().__init__()
        self._options = ProtobufOptions()
        self._codec: type[ProtobufCodec] | None = None

    def open(self, values: Mapping[str, object]) -> None:
        try:
            from penstock.converters.registry.protobuf_codec import ProtobufCodec
        except ImportError as error:
            raise ConfigException(_MISSING.format(error=error)) from error
        self._codec = ProtobufCodec
        self._options = ProtobufOptions(**{field: bool(values[name]) for name, _, field, _ in _SETTINGS})

    def describe(self, schema: Schema | None) -> SchemaText:
        from penstock.converters.registry.protobuf_describing import describe_file
        from penstock.converters.registry.protobuf_files import file_text

        if schema is None:
            raise DataException(
                "ProtobufConverter writes values with a schema only, and this one has none; give it one, or use "
                "org.apache.kafka.connect.json.JsonConverter with schemas.enable=false"
            )
        return SchemaText(self.format, file_text(describe_file(schema, self._options)))

    def parse(self, text: SchemaText, version: int | None) -> ProtobufCodec:
        if self._codec is None:
            raise ConfigException("ProtobufConverter is used before it was configured")
        return self._codec(text.text, text.texts(), self._options, version)

    def encode(self, codec: ProtobufCodec, schema: Schema | None, value: object) -> bytes:
        if schema is None:
            raise DataException("ProtobufConverter writes values with a schema only")
        return codec.encode(schema, value)

    def decode(self, codec: ProtobufCodec, payload: bytes, where: str) -> SchemaAndValue:
        return codec.decode(payload, where)
