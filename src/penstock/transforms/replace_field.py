"""ReplaceField: leaves fields out, or renames them.

Classes ``ReplaceFieldKey`` and ``ReplaceFieldValue``. Thread: configured once; ``step`` and ``apply`` on a pipeline
thread. Source: org.apache.kafka.connect.transforms.ReplaceField.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, ClassVar, Final, cast

from pyspark.sql import functions as F

from penstock.api import Transformation
from penstock.api.transform import R
from penstock.config import AbstractConfig, AnyNonDuplicate, ConfigDef, LambdaValidator, setting
from penstock.data import Field, Schema, Struct, Type
from penstock.errors import ConfigException, DataException, SchemaBuilderException
from penstock.pipeline.objects import members_of, object_column, object_side
from penstock.pipeline.step import (
    Bag,
    Branch,
    ColumnTransform,
    Fault,
    Keep,
    Made,
    Shape,
    Side,
    SideName,
    Split,
    Step,
    StepPlan,
)
from penstock.pipeline.types import Form, Physical
from penstock.transforms.requirements import (
    is_struct,
    java_class,
    map_fault,
    no_struct,
    require_map,
    require_struct,
    with_string_keys,
)
from penstock.transforms.settings import null_replacement, replaces_nulls
from penstock.transforms.struct_copies import copied_layout, field_column, field_value, required_fault, schema_like

if TYPE_CHECKING:
    from pyspark.sql import Column

_PURPOSE: Final = "field replacement"


def parse_renames(mappings: Sequence[str]) -> dict[str, str]:
    """The renames of the setting: old name to new name; the last one of an old name counts.

    Raises:
        ConfigException: One is not of the form ``old:new``.
    """
    renames: dict[str, str] = {}
    for mapping in mappings:
        # Java's split forgets empty parts at the end.
        parts = mapping.rstrip(":").split(":") if mapping.strip(":") else []
        if len(parts) != 2:
            raise ConfigException("renames", list(mappings), f"Invalid rename mapping: {mapping}")
        renames[parts[0]] = parts[1]
    return renames


def _ensure_renames(name: str, value: object) -> None:
    if value is None:
        raise ConfigException(f"Configuration '{name}' values must not be null.")
    parse_renames(cast("list[str]", value))


_LIST: Final = AnyNonDuplicate(empty_allowed=True, null_allowed=False)


class ReplaceFieldConfig(AbstractConfig):
    """The settings of ``ReplaceField``."""

    exclude: tuple[str, ...] = setting(
        default=(),
        validator=_LIST,
        doc="Fields to exclude. This takes precedence over the fields to include.",
    )
    include: tuple[str, ...] = setting(
        default=(),
        validator=_LIST,
        doc="Fields to include. If specified, only these fields will be used.",
    )
    renames: tuple[str, ...] = setting(
        default=(),
        validator=LambdaValidator(_ensure_renames, "list of colon-delimited pairs, e.g. <code>foo:bar,abc:xyz</code>"),
        doc="Field rename mappings.",
    )
    replace_null_with_default: bool | None = null_replacement()


@dataclass(frozen=True)
class Choice:
    """Which fields stay, and their new names.

    Attributes:
        exclude, include: As in the settings.
        renames: Old and new name, for each.
    """

    exclude: tuple[str, ...]
    include: tuple[str, ...]
    renames: tuple[tuple[str, str], ...]

    def keeps(self, name: str) -> bool:
        """Whether a field of this (old) name stays."""
        return name not in self.exclude and (not self.include or name in self.include)

    def renamed(self, name: str) -> str:
        """The new name of a field."""
        return self._new_names.get(name, name)

    @cached_property
    def _new_names(self) -> Mapping[str, str]:
        return dict(self.renames)

    def source(self, name: str) -> str:
        """The old name of a field, by its new one.

        As in Java this looks at the renames alone: a field that already has the new name of another is taken for it.
        """
        return {new: old for old, new in self.renames}.get(name, name)

    def schema(self, schema: Schema) -> Schema:
        """The schema of the struct that remains.

        Raises:
            SchemaBuilderException: Two fields get one name.
        """
        return _chosen(schema, self)


@lru_cache(maxsize=256)
def _chosen(schema: Schema, choice: Choice) -> Schema:
    kept = [field for field in schema.fields if choice.keeps(field.name)]
    return schema_like(schema, [(choice.renamed(field.name), field.schema) for field in kept])


@dataclass(frozen=True)
class Replace(Step):
    """Leaves fields of one side out and renames others."""

    side: SideName
    choice: Choice
    defaults: bool
    bounds_text: ClassVar[bool] = True

    def takes(self, shape: Shape) -> bool:
        """See ``Step``. Objects only where a member is left, and no two of them get one name."""
        known = shape.side(self.side)
        if not known.is_object:
            return not known.is_variant
        kept = [self.choice.renamed(name) for name in members_of(known) if self.choice.keeps(name)]
        return 0 < len(kept) == len(set(kept))

    def plan(self, shape: Shape) -> StepPlan | Split:
        """See ``Step``."""
        known = shape.side(self.side)
        if known.absent:
            return StepPlan(shape)
        if known.is_object:
            return self._plan_members(shape, known)
        if known.schema is None:
            return self._plan_kind(shape, known)
        replaced = self._plan_struct(shape, known, known.schema)
        if known.present or replaced.shape == shape:
            return replaced
        # A null keeps its old schema, so null and other records part here.
        return Split([Branch(self._is_null, StepPlan(shape), frozenset({self.side})), Branch(None, replaced)])

    def _is_null(self, bag: Bag) -> Column:
        return bag.side(self.side).isNull()

    def _failing(self, shape: Shape, fault: Fault) -> StepPlan:
        """The plan where no value but null can pass."""

        def make(bag: Bag, keep: Keep) -> Made:
            return Made(faults=(Fault(bag.side(self.side).isNotNull(), fault.message, fault.exception),))

        return StepPlan(shape, make, frozenset({self.side}))

    def _plan_struct(self, shape: Shape, known: Side, schema: Schema) -> StepPlan:
        if not is_struct(known):
            message = f"{no_struct(_PURPOSE)}{java_class(schema)}"
            return self._failing(shape, Fault(None, message, DataException.java_name))
        try:
            chosen = self.choice.schema(schema)
        except SchemaBuilderException as error:
            return self._failing(shape, Fault(None, str(error), SchemaBuilderException.java_name))
        sources: list[tuple[str, Field]] = []
        for field in chosen.fields:
            source = schema.field(self.choice.source(field.name))
            problem = _misfit(field, source, self.choice)
            if problem is not None or source is None:
                return self._failing(shape, Fault(None, problem or "", DataException.java_name))
            sources.append((field.name, source))
        layouts = [known.physical.children[source.index] for _, source in sources]
        copied = [
            copied_layout(source, layout, defaults=self.defaults)
            for (_, source), layout in zip(sources, layouts, strict=True)
        ]
        side = Side.of(chosen, Physical(Form.STRUCT, tuple(copied)), present=True, complete=known.complete)

        def make(bag: Bag, keep: Keep) -> Made:
            value = bag.side(self.side)
            fields = [
                field_column(value, source, layout, defaults=self.defaults).alias(name)
                for (name, source), layout in zip(sources, layouts, strict=True)
            ]
            fault = required_fault(value, sources, defaults=self.defaults, complete=known.complete)
            return Made({self.side: F.struct(*fields)}, () if fault is None else (fault,))

        names = frozenset({self.side})
        return StepPlan(shape.with_side(self.side, side), make, names, names)

    def _plan_members(self, shape: Shape, known: Side) -> StepPlan:
        kept = {name: one for name, one in members_of(known).items() if self.choice.keeps(name)}
        members = {self.choice.renamed(name): one for name, one in kept.items()}

        def make(bag: Bag, keep: Keep) -> Made:
            value = bag.side(self.side)
            columns = {self.choice.renamed(name): value.getField(name) for name in kept}
            return Made({self.side: object_column(value, known, columns)})

        names = frozenset({self.side})
        side = object_side(members, present=known.present)
        return StepPlan(shape.with_side(self.side, side), make, names, names)

    def _plan_kind(self, shape: Shape, known: Side) -> StepPlan:
        """Values of one kind, which are no maps: null passes alone."""

        def make(bag: Bag, keep: Keep) -> Made:
            fault = map_fault(bag.side(self.side), known, _PURPOSE, or_null=True)
            return Made(faults=() if fault is None else (fault,))

        return StepPlan(shape, make, frozenset({self.side}))


def _misfit(field: Field, source: Field | None, choice: Choice) -> str | None:
    """Why a field cannot be filled from ``source``, None when it can.

    Only possible where a field is renamed to a name that another one has; see ``Choice.source``.
    """
    if source is None:
        return f"{choice.source(field.name)} is not a valid field name"
    if _same_values(source.schema, field.schema):
        return None
    return (
        f"Invalid value for schema with type {field.schema.type.name}: a value of type {source.schema.type.name} "
        f'for field: "{field.name}"'
    )


def _same_values(one: Schema, other: Schema) -> bool:
    """Whether what is a value of one schema is a value of another, null apart."""
    if one.type is not other.type or one.name != other.name:
        return False
    match one.type:
        case Type.ARRAY:
            return one.value_schema == other.value_schema
        case Type.MAP:
            return (one.key_schema, one.value_schema) == (other.key_schema, other.value_schema)
        case Type.STRUCT:
            return one.fields == other.fields
        case _:
            return True


class _ReplaceField(ColumnTransform, Transformation):
    side: ClassVar[SideName]
    _choice: Choice = Choice((), (), ())
    _defaults: bool = True

    def configure(self, props: Mapping[str, object]) -> None:
        config = ReplaceFieldConfig.parse(props)
        self._choice = Choice(config.exclude, config.include, tuple(parse_renames(config.renames).items()))
        self._defaults = replaces_nulls(config.replace_null_with_default)

    def config(self) -> ConfigDef:
        return ReplaceFieldConfig.definition()

    def step(self) -> Step:
        return Replace(self.side, self._choice, self._defaults)

    def apply(self, record: R) -> R:
        """The same for one record, for callers outside of a pipeline."""
        schema, value = (record.key_schema, record.key) if self.side == "key" else (record.value_schema, record.value)
        if value is None:
            return record
        replaced: object
        if schema is None:
            members = with_string_keys(require_map(value, _PURPOSE))
            keeps, renamed = self._choice.keeps, self._choice.renamed
            replaced = {renamed(key): one for key, one in members.items() if keeps(key)}
        else:
            replaced = self._struct(require_struct(value, schema, _PURPOSE))
            schema = replaced.schema
        if self.side == "key":
            return cast("R", record.new_record(key_schema=schema, key=replaced))
        return cast("R", record.new_record(value_schema=schema, value=replaced))

    def _struct(self, value: Struct) -> Struct:
        replaced = Struct(self._choice.schema(value.schema))
        for field in replaced.schema.fields:
            replaced.put(field, field_value(value, self._choice.source(field.name), defaults=self._defaults))
        return replaced


class ReplaceFieldKey(_ReplaceField):
    """ReplaceField on the key."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.ReplaceField$Key"
    side: ClassVar[SideName] = "key"


class ReplaceFieldValue(_ReplaceField):
    """ReplaceField on the value."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.ReplaceField$Value"
    side: ClassVar[SideName] = "value"
