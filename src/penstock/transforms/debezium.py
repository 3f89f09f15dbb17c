"""ExtractNewRecordState: extracts the row from Debezium's envelope, as it is after the change.

There are five kinds of records: tombstones (null), changes of a row (with ``after``), deletes (only ``before``),
truncates (neither), and records without an envelope (heartbeats, transactions, schema changes), which pass unchanged.

Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: io.debezium.transforms.ExtractNewRecordState (3.6); its documentation, "New Record State Extraction".
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from pyspark.sql import functions as F

from penstock.api.transform import R
from penstock.config import AbstractConfig, CaseInsensitiveValidString, Importance, LambdaValidator, setting
from penstock.config.parse import java_trim
from penstock.data import STRING_SCHEMA, Field, Header, Schema, Struct, Type
from penstock.errors import ConfigException, ConnectException, DataException, java_class_name
from penstock.pipeline.batch.headers import HEADER_SCHEMAS, header_entry, with_headers
from penstock.pipeline.columns.layout import SCALAR, Layout, LayoutKind, text_bound
from penstock.pipeline.plan.frame_values import variant_of
from penstock.pipeline.plan.map_structs import members_of
from penstock.pipeline.plan.step import (
    SCHEMALESS_TEXT,
    Branch,
    Made,
    NameColumn,
    RecordColumns,
    Shape,
    Side,
    SideName,
    Split,
    StepFault,
    StepPlan,
)
from penstock.transforms.definition import (
    Definition,
    StockTransform,
    UnknownFieldError,
    null_replacement,
    replaces_nulls,
    require_struct,
)
from penstock.transforms.fields import FieldSelection, field_column, schema_like, side_of
from penstock.transforms.restructuring import Replace

if TYPE_CHECKING:
    from pyspark.sql import Column


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


def _added_setting(where: str) -> Any:
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
    add_fields: tuple[str, ...] = _added_setting("row")
    add_headers_prefix: str | None = setting(
        default="__", importance=Importance.LOW, doc="In front of the names of added headers."
    )
    add_headers: tuple[str, ...] = _added_setting("headers")
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


_ENVELOPE: Final = ".Envelope"
_DELETED: Final = "__deleted"
_ADDING: Final = "source field insertion"
_OP_OF_DELETE: Final = "d"
_FAILED: Final = DataException.java_name
#: The fields that a schemaless map has if it is an envelope.
_OPERATION, _SOURCE, _ROWS = "op", "source", frozenset({"before", "after"})


class _Kind(enum.Enum):
    """The kind of a record with an envelope; the value is the field that contains the row."""

    CHANGE = "after"
    DELETE = "before"


def _is_envelope(schema: Schema | None) -> bool:
    return schema is not None and (schema.name or "").endswith(_ENVELOPE)


@dataclass(frozen=True)
class _Added:
    """A copied field of the envelope: its path, its new schema and its new name."""

    name: str
    path: tuple[Field, ...]
    schema: Schema

    def value(self, envelope: Struct) -> object:
        found: object = envelope
        for one in self.path:
            if not isinstance(found, Struct):
                return None
            found = found.get_without_default(one)
        return found

    def layout(self, envelope: Layout) -> Layout:
        for one in self.path:
            envelope = envelope.children[one.index]
        return envelope

    def column(self, envelope: Column) -> Column:
        for one in self.path:
            envelope = envelope.getField(one.name)
        return envelope


@lru_cache(maxsize=1024)
def _added(schema: Schema, reference: FieldReference) -> _Added | None:
    """Resolves a reference in envelopes of a schema; None if the field does not exist."""
    parent = None if reference.struct is None else schema.field(reference.struct)
    inner = None if parent is None or parent.schema.type is not Type.STRUCT else parent.schema.field(reference.field)
    if parent is not None and inner is not None:
        return _Added(reference.name, (parent, inner), _optional(inner.schema))
    field = schema.field(reference.field)
    return None if field is None else _Added(reference.name, (field,), _optional(field.schema))


def _optional(schema: Schema) -> Schema:
    """The schema of a copied field: optional, without a default."""
    return Schema(
        schema.type,
        optional=True,
        name=schema.name,
        version=schema.version,
        doc=schema.doc,
        parameters=schema.parameters,
        fields=schema.fields if schema.type is Type.STRUCT else (),
        key_schema=schema.key_schema if schema.type is Type.MAP else None,
        value_schema=schema.value_schema if schema.type in (Type.MAP, Type.ARRAY) else None,
    )


@dataclass(frozen=True)
class Unwrap(Definition):
    """Extracts rows from envelopes."""

    deletes: Deletes
    keeps_tombstones: bool
    fields: tuple[FieldReference, ...]
    headers: tuple[FieldReference, ...]
    route: str | None
    defaults: bool
    drop_header: str | None = None
    drop_from_key: bool = False
    drop_optional_only: bool = True
    bounds_text: ClassVar[bool] = True

    @property
    def changes_topic(self) -> bool:  # type: ignore[override]
        return self.route is not None

    def takes(self, shape: Shape) -> bool:
        """Not if a header drops fields, which differs for each record, nor for a VARIANT."""
        known = shape.value
        if known.absent:
            return True
        if known.is_variant or self.drop_header is not None:
            return False
        if known.schema is None:
            return not (known.is_object and _is_map_of_change(members_of(known)))
        if not _is_envelope(known.schema):
            return True
        return known.physical.form is LayoutKind.STRUCT and all(
            (field := known.schema.field(name)) is not None
            and field.schema.type is Type.STRUCT
            and field.schema.default is None
            and known.physical.children[field.index].form is LayoutKind.STRUCT
            for name in _ROWS
        )

    # ------------------------------------------------------------------ one record
    def apply(self, record: R) -> R | None:
        schema, value = record.value_schema, record.value
        if value is None:
            if not self.keeps_tombstones:
                return None
            added = [Header(one.name, _OP_OF_DELETE, STRING_SCHEMA) for one in self.headers if one.is_operation]
            return _with_headers(record, added)
        if schema is None:
            is_change = isinstance(value, dict) and _is_map_of_change(value)
            return self._apply_map(record, cast("dict[str, object]", value)) if is_change else record
        return self._apply_struct(record, schema) if _is_envelope(schema) else record

    def _apply_struct(self, record: R, schema: Schema) -> R | None:
        envelope = require_struct(record.value, schema, "field extraction")
        for name in ("after", "before"):
            if schema.field(name) is None:
                raise UnknownFieldError(f"Unknown field: {name}")
        row, kind = envelope.get("after"), _Kind.CHANGE
        if row is None:
            row, kind = envelope.get("before"), _Kind.DELETE
        if row is None or (kind is _Kind.DELETE and self.deletes is Deletes.DROP):
            return None
        headers = [Header(one.name, one.value(envelope), one.schema) for one in self._added(schema, self.headers)]
        field = cast("Field", schema.field(kind.value))
        struct = require_struct(row, field.schema, _ADDING)
        made_schema: Schema | None = None
        made: Struct | None = None
        rewrites = self.deletes is Deletes.REWRITE
        # Java reads the topic after inserting __deleted, which replaces nulls by defaults.
        topic = record.topic if rewrites else self._topic_of(struct, record.topic)
        if kind is _Kind.CHANGE or rewrites:
            selection = self._selection(schema, kind)
            made_schema, made = selection.schema, selection.struct(struct)
            made.values += [_deleted(kind)] if rewrites else []
            made.values += [one.value(envelope) for one in self._added(schema, self.fields)]
        elif self.deletes is Deletes.KEEP_SCHEMA:
            made_schema = cast("Field", schema.field("after")).schema
        if rewrites:
            topic = self._topic_of(struct if kind is _Kind.DELETE or made is None else made, record.topic)
        new = cast("R", record.new_record(topic=cast("str", topic), value_schema=made_schema, value=made))
        return self._without_dropped(_with_headers(new, headers))

    def _apply_map(self, record: R, envelope: Mapping[str, object]) -> R | None:
        row, kind = envelope.get("after"), _Kind.CHANGE
        if row is None:
            row, kind = envelope.get("before"), _Kind.DELETE
        if row is None or (kind is _Kind.DELETE and self.deletes is Deletes.DROP):
            return None
        if not isinstance(row, dict):
            raise DataException(f'The field "{kind.value}" of a change must be a map of columns; it is {row!r:.80}')
        topic = self._topic_of(row, record.topic)
        made: dict[str, object] | None = None
        if kind is _Kind.CHANGE or self.deletes is Deletes.REWRITE:
            made = dict(row)
            if self.deletes is Deletes.REWRITE:
                made[_DELETED] = _deleted(kind)
            made |= dict(one.of_map(envelope) for one in self.fields if one.is_in(envelope))
        headers = [Header(*one.of_map(envelope)) for one in self.headers if one.is_in(envelope)]
        new = cast("R", record.new_record(topic=cast("str", topic), value=made))
        return self._without_dropped(_with_headers(new, headers))

    def _topic_of(self, row: Struct | Mapping[str, object], topic: str | None) -> str | None:
        if self.route is None:
            return topic
        if isinstance(row, Struct):
            fault = self._route_fault(row.schema)
            if fault is not None:
                raise DataException(fault)
            found = row.get_without_default(self.route)
        elif self.route not in row:
            raise DataException(f"{self.route} is not a valid field name")
        else:
            found = row[self.route]
            if found is not None and not isinstance(found, str):
                raise DataException(f"Field '{self.route}' is not of type STRING")
        return topic if found is None or not java_trim(cast("str", found)) else cast("str", found)

    def _route_fault(self, row: Schema) -> str | None:
        field = row.field(self.route or "")
        if field is None:
            return f"{self.route} is not a valid field name"
        return None if field.schema.type is Type.STRING else f"Field '{self.route}' is not of type STRING"

    def _without_dropped(self, record: R) -> R | None:
        header = None if self.drop_header is None else next(record.headers.all_with_name(self.drop_header), None)
        if header is None or header.value is None:
            return record
        names = header.value
        if not isinstance(names, (list, tuple)) or not all(isinstance(one, str) for one in names):
            raise DataException(
                f'The header "{self.drop_header}" (drop.fields.header.name) must hold a list of field names; '
                f"it holds {names!r:.80}"
            )
        sides: tuple[SideName, ...] = ("key", "value") if self.drop_from_key else ("value",)
        changed: R | None = record
        for side in sides:
            schema, value = side_of(record, side)
            gone = self._dropped(schema, names)
            if changed is not None and gone and (value is not None or schema is not None):
                changed = Replace(side, gone, (), (), defaults=True).apply(changed)
        return changed

    def _dropped(self, schema: Schema | None, names: Sequence[str]) -> tuple[str, ...]:
        if schema is None or not self.drop_optional_only:
            return tuple(names)
        if schema.type is not Type.STRUCT:
            return ()
        return tuple(one.name for one in schema.fields if one.schema.optional and one.name in names)

    # ------------------------------------------------------------------ of a schema
    def _added(self, schema: Schema, references: Sequence[FieldReference]) -> list[_Added]:
        found = [_added(schema, one) for one in references]
        return [one for one in found if one is not None]

    def _selection(self, schema: Schema, kind: _Kind) -> FieldSelection:
        return _selection_of(self, schema, kind)

    # ------------------------------------------------------------------ columns
    def plan(self, shape: Shape) -> StepPlan | Split:
        known = shape.value
        tombstone = StepPlan(shape, partial(self._make_tombstone), frozenset({"headers"}), self._writes(set()))
        if known.absent:
            return tombstone
        reads = frozenset({"value"})
        nulls = [] if known.present else [Branch(lambda record: record.value.isNull(), tombstone, reads)]
        if known.schema is None or not _is_envelope(known.schema):
            return Split([*nulls, Branch(None, StepPlan(shape))]) if nulls else StepPlan(shape)
        dropped = StepPlan(shape, lambda record, keep: Made(drops=F.lit(True)))
        changes = self._planned(shape, known.schema, _Kind.CHANGE)
        deletes = dropped if self.deletes is Deletes.DROP else self._planned(shape, known.schema, _Kind.DELETE)
        return Split(
            [
                *nulls,
                Branch(lambda record: record.value.getField("after").isNotNull(), changes, reads),
                Branch(lambda record: record.value.getField("before").isNotNull(), deletes, reads),
                Branch(None, dropped),
            ]
        )

    def _writes(self, names: set[str]) -> frozenset[str]:
        names |= {"headers"} if self.headers else set()
        return frozenset(names | ({"topic"} if self.route is not None else set()))

    def _make_tombstone(self, record: RecordColumns, keep: NameColumn) -> Made:
        if not self.keeps_tombstones:
            return Made(drops=F.lit(True))
        number, value = HEADER_SCHEMAS.number(STRING_SCHEMA), F.lit(_OP_OF_DELETE).cast("variant")
        entries = [header_entry(one.name, value, number) for one in self.headers if one.is_operation]
        return Made({"headers": with_headers(record.headers, entries)} if entries else {})

    def _planned(self, shape: Shape, schema: Schema, kind: _Kind) -> StepPlan:
        """The plan for changes, or deletes, of one schema."""
        known = shape.value
        reads = frozenset({"value", "headers", "topic"})
        if kind is _Kind.DELETE and self.deletes is not Deletes.REWRITE:
            after = cast("Field", schema.field("after"))
            side = Side.of(after.schema, known.physical.children[after.index])
            empty = self.deletes is Deletes.EMPTY
            make = partial(self._make_null, schema, known.physical, empty)
            new = shape.with_side("value", SCHEMALESS_TEXT if empty else side)
            return StepPlan(new, make, reads, self._writes({"value"}))
        field = cast("Field", schema.field(kind.value))
        try:
            selection = self._selection(schema, kind)
        except ConnectException as error:
            # Java notices it with the record: only records of this kind fail.
            fault = StepFault(None, str(error), java_class_name(error))
            return StepPlan(shape, lambda record, keep: Made(faults=[fault]), reads)
        row = known.physical.children[field.index]
        layouts = list(selection.layout(row).children)
        if self.deletes is Deletes.REWRITE:
            layouts.append(Layout(SCALAR.form, text=text_bound(_deleted(kind))))
        layouts += [one.layout(known.physical) for one in self._added(schema, self.fields)]
        side = Side.of(
            selection.schema, Layout(LayoutKind.STRUCT, tuple(layouts)), present=True, complete=known.complete
        )
        inner = Side.of(field.schema, row, present=True, complete=known.complete)
        make = partial(self._make_row, schema, known.physical, kind, inner, selection)
        return StepPlan(shape.with_side("value", side), make, reads, self._writes({"value"}))

    def _make_row(
        self,
        schema: Schema,
        layout: Layout,
        kind: _Kind,
        inner: Side,
        selection: FieldSelection,
        record: RecordColumns,
        keep: NameColumn,
    ) -> Made:
        row = record.value.getField(kind.value)
        columns, faults = selection.columns(row, inner, keep)
        if self.deletes is Deletes.REWRITE:
            columns.append(F.lit(_deleted(kind)).alias(_DELETED))
        columns += [one.column(record.value).alias(one.name) for one in self._added(schema, self.fields)]
        rewrites = self.deletes is Deletes.REWRITE
        defaults = rewrites and self.defaults and kind is _Kind.CHANGE
        more, of_route = self._beside(schema, layout, row, record, defaults=defaults)
        return Made({"value": F.struct(*columns), **more}, [*faults, *of_route] if rewrites else [*of_route, *faults])

    def _make_null(self, schema: Schema, layout: Layout, empty: bool, record: RecordColumns, keep: NameColumn) -> Made:
        nothing = F.lit(None).cast("string") if empty else record.value.getField("after")
        more, faults = self._beside(schema, layout, record.value.getField("before"), record)
        return Made({"value": nothing, **more}, faults)

    def _beside(
        self, schema: Schema, layout: Layout, row: Column, record: RecordColumns, *, defaults: bool = False
    ) -> tuple[dict[str, Column], Sequence[StepFault]]:
        """The topic and the headers."""
        columns: dict[str, Column] = {}
        entries = [
            header_entry(
                one.name,
                variant_of(one.column(record.value), one.schema, one.layout(layout)),
                HEADER_SCHEMAS.number(one.schema),
            )
            for one in self._added(schema, self.headers)
        ]
        if self.headers:
            columns["headers"] = with_headers(record.headers, entries) if entries else record.headers
        if self.route is None:
            return columns, ()
        rows = cast("Field", schema.field("after"))
        fault = self._route_fault(rows.schema)
        if fault is not None:
            return {**columns, "topic": record.topic}, [StepFault(None, fault, _FAILED)]
        field = cast("Field", rows.schema.field(self.route))
        named = field_column(row, field, layout.children[rows.index].children[field.index], defaults=defaults)
        columns["topic"] = F.when(named.rlike(r"[^\x00-\x20]"), named).otherwise(record.topic)
        return columns, ()


def _deleted(kind: _Kind) -> str:
    return "true" if kind is _Kind.DELETE else "false"


@lru_cache(maxsize=1024)
def _selection_of(unwrap: Unwrap, schema: Schema, kind: _Kind) -> FieldSelection:
    """The struct built from rows: their fields, then ``__deleted`` and the copied fields."""
    row = cast("Field", schema.field(kind.value)).schema
    rewrites = unwrap.deletes is Deletes.REWRITE
    more = [(_DELETED, Schema(Type.STRING, optional=True))] if rewrites else []
    more += [
        (one.name, one.schema) for one in (_added(schema, reference) for reference in unwrap.fields) if one is not None
    ]
    made = schema_like(row, [*((one.name, one.schema) for one in row.fields), *more])
    return FieldSelection.of_all(made, row.fields, rewrites and unwrap.defaults)


def _is_map_of_change(value: Mapping[str, object] | Mapping[object, object]) -> bool:
    return _OPERATION in value and _SOURCE in value and any(name in value for name in _ROWS)


def _with_headers(record: R, added: Sequence[Header]) -> R:
    if not added:
        return record
    changed = cast("R", record.new_record())
    for one in added:
        changed.headers.add(one)
    return changed


class ExtractNewRecordState(StockTransform[ExtractNewRecordStateConfig]):
    """Replaces Debezium's envelope by the row as it is after the change."""

    java_name: ClassVar[str] = "io.debezium.transforms.ExtractNewRecordState"
    settings = ExtractNewRecordStateConfig

    def define(self, config: ExtractNewRecordStateConfig) -> Unwrap:
        deletes, keeps_tombstones = config.handling()
        return Unwrap(
            deletes,
            keeps_tombstones,
            tuple(FieldReference.parse(config.add_fields_prefix or "", one) for one in config.add_fields),
            tuple(FieldReference.parse(config.add_headers_prefix or "", one) for one in config.add_headers),
            config.route_by_field or None,
            replaces_nulls(config.replace_null_with_default),
            (config.drop_fields_header_name or "").strip() or None,
            config.drop_fields_from_key,
            config.drop_fields_keep_schema_compatible,
        )
