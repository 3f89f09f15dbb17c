"""The settings of ExtractNewRecordState, including Debezium's deprecated ones, and references to metadata fields.

Main types: ``ExtractNewRecordStateConfig``, ``Deletes`` (the treatment of deletes), ``FieldReference`` (an entry of
``add.fields`` or ``add.headers``). Values; any thread.
Source: io.debezium.transforms.ExtractNewRecordStateConfigDefinition, AbstractExtractNewRecordState.FieldReference.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.config import AbstractConfig, CaseInsensitiveValidString, Importance, LambdaValidator, setting
from penstock.errors import ConfigException
from penstock.transforms.definition import null_replacement


class Deletes(enum.Enum):
    """The treatment of a delete."""

    DROP = "it is dropped"
    KEEP_SCHEMA = "it becomes null, with the schema of rows"
    EMPTY = "it becomes a tombstone: null without schema"
    REWRITE = "it becomes the row before, with __deleted"


#: By ``delete.tombstone.handling.mode``: the treatment of deletes, and whether tombstones are kept.
_MODES: Final[Mapping[str, tuple[Deletes, bool]]] = {
    "drop": (Deletes.DROP, False),
    "tombstone": (Deletes.KEEP_SCHEMA, False),
    "rewrite": (Deletes.REWRITE, False),
    "rewrite-with-tombstone": (Deletes.REWRITE, True),
    "delete-to-tombstone": (Deletes.EMPTY, False),
}
#: By the deprecated ``delete.handling.mode``.
_OLD_MODES: Final[Mapping[str, Deletes]] = {
    "drop": Deletes.DROP,
    "none": Deletes.KEEP_SCHEMA,
    "rewrite": Deletes.REWRITE,
}
_OF_TRANSACTION: Final = ("id", "data_collection_order", "total_order")
_AT_TOP: Final = ("op", "ts_ms", "ts_us", "ts_ns")


@dataclass(frozen=True)
class FieldReference:
    """A field of the envelope that is copied to rows or headers.

    Attributes:
        struct: The struct of the envelope that contains it; None = the top level.
        field: Its name there. A missing field is looked up at the top level.
        name: Its new name.
    """

    struct: str | None
    field: str
    name: str

    @classmethod
    def parse(cls, prefix: str, text: str) -> FieldReference:
        """Reads ``field``, ``struct.field``, and either with ``:name``.

        Raises:
            ConfigException: The text has another form.

        >>> FieldReference.parse("__", "source.ts_ms")
        FieldReference(struct='source', field='ts_ms', name='__source_ts_ms')
        """
        way, *names = text.strip().split(":")
        struct, dot, field = way.partition(".")
        if not dot:
            struct, field = "", way
        if not field or (dot and not struct) or len(names) > 1 or names == [""]:
            raise ConfigException(f'Unexpected field name: "{text}"; it must be FIELD or STRUCT.FIELD, or either:NAME')
        new = names[0] if names else f"{struct}_{field}" if dot else field
        return cls(struct if dot else _struct_of(field), field, prefix + new)

    @property
    def is_operation(self) -> bool:
        """True for ``op``, the only field that a tombstone has."""
        return self.field == "op"

    def is_in(self, envelope: Mapping[str, object]) -> bool:
        """True if a schemaless envelope has the field."""
        inner = None if self.struct is None else envelope.get(self.struct)
        return self.field in envelope or (isinstance(inner, dict) and self.field in inner)

    def of_map(self, envelope: Mapping[str, object]) -> tuple[str, object]:
        """The new name and the value of the field in a schemaless envelope."""
        inner = None if self.struct is None else envelope.get(self.struct)
        found = inner if isinstance(inner, dict) and self.field in inner else envelope
        return self.name, found.get(self.field)


def _struct_of(field: str) -> str | None:
    if field in _OF_TRANSACTION:
        return "transaction"
    if field in _AT_TOP:
        return None
    return field if field == "updateDescription" else "source"


def _ensure_references(name: str, value: object) -> None:
    for one in value if isinstance(value, (list, tuple)) else ():
        try:
            FieldReference.parse("", str(one))
        except ConfigException as error:
            raise ConfigException(name, value, str(error)) from error


def _added(where: str) -> Any:
    return setting(
        default=(),
        validator=LambdaValidator(_ensure_references, "list of FIELD, STRUCT.FIELD, or either with :NAME"),
        importance=Importance.LOW,
        doc=f"Fields of the envelope that are added to the {where}, as FIELD, STRUCT.FIELD (source.ts_ms), or either "
        "with :NAME for another name. A field that the envelope does not have is left out.",
    )


class _OneOf(CaseInsensitiveValidString):
    """One of some texts; null and blank text count as not set."""

    def ensure_valid(self, name: str, value: object) -> None:
        """See ``Validator``."""
        if value is not None and str(value).strip():
            super().ensure_valid(name, str(value).strip())


class ExtractNewRecordStateConfig(AbstractConfig):
    """The settings of ``ExtractNewRecordState``."""

    delete_tombstone_handling_mode: str | None = setting(
        default=None,
        validator=_OneOf(*_MODES),
        doc="What becomes of deletes and of tombstones. drop: both are dropped. tombstone (in effect where none of the "
        "modes is set): a delete becomes null, tombstones are dropped. rewrite: a delete becomes the row before it, "
        "every row gets the field __deleted, tombstones are dropped. rewrite-with-tombstone: the same, but tombstones "
        "stay. delete-to-tombstone: a delete becomes null without a schema, tombstones are dropped.",
    )
    drop_tombstones: bool | None = setting(
        default=None,
        importance=Importance.LOW,
        doc="Deprecated: whether tombstones are dropped, with delete.handling.mode (then true by default). Not looked "
        "at with delete.tombstone.handling.mode.",
    )
    delete_handling_mode: str | None = setting(
        default=None,
        validator=_OneOf(*_OLD_MODES),
        doc="Deprecated: what becomes of deletes: drop (the default with drop.tombstones), none (null) or rewrite. Not "
        "looked at with delete.tombstone.handling.mode.",
    )
    route_by_field: str | None = setting(
        default="",
        importance=Importance.LOW,
        doc="A field of the row whose text is the topic that the record goes to; null and blank keep the topic.",
    )
    add_fields_prefix: str | None = setting(
        default="__", importance=Importance.LOW, doc="In front of the names of added fields."
    )
    add_fields: tuple[str, ...] = _added("row")
    add_headers_prefix: str | None = setting(
        default="__", importance=Importance.LOW, doc="In front of the names of added headers."
    )
    add_headers: tuple[str, ...] = _added("headers")
    drop_fields_header_name: str | None = setting(
        default=None,
        importance=Importance.LOW,
        doc="A header that holds a list of names: fields that are removed from the row. Records are then worked on one "
        "by one.",
    )
    drop_fields_from_key: bool = setting(
        default=False,
        importance=Importance.LOW,
        doc="Whether the fields that the header names are removed from the key, too.",
    )
    drop_fields_keep_schema_compatible: bool = setting(
        default=True,
        importance=Importance.LOW,
        doc="Whether only optional fields are removed, where there is a schema.",
    )
    replace_null_with_default: bool | None = null_replacement()

    def handling(self) -> tuple[Deletes, bool]:
        """Returns how deletes are handled, and whether tombstones are kept."""
        mode = (self.delete_tombstone_handling_mode or "").strip().lower()
        old = (self.delete_handling_mode or "").strip().lower()
        if not mode and (old or self.drop_tombstones is not None):
            return _OLD_MODES[old or "drop"], self.drop_tombstones is False
        return _MODES[mode or "tombstone"]
