"""Columns from records and back: lists of Python values <-> Arrow arrays.

Building a column never raises for one value: that value gets an error and its slot is null. Whether all values are
right is found out in C where it can be (the set of their classes, then Arrow's own range checks); only when that fails
is the batch halved until the bad values are isolated, and ``validate_value`` explains each of them. Nulls are
never an error here: Connect checks them where a Struct is filled and where a value is converted.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, pairwise, repeat
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa

from penstock.api.arrow import one_array
from penstock.data import Date, FarDate, FarTime, FarTimestamp, Schema, Struct, Time, Timestamp, Type, validate_value
from penstock.data.structs import map_key
from penstock.errors import DataException
from penstock.pipeline.columns import variant
from penstock.pipeline.columns.layout import (
    DECIMAL,
    MAX_DECIMAL_DIGITS,
    SCALAR,
    UNSCALED,
    UNSCALED_ARROW,
    VARIANT,
    VARIANT_FIELDS,
    Layout,
    LayoutKind,
    arrow_type,
    date_of_days,
    datetime_of_millis,
    days_of_date,
    decimal_scale,
    default_physical,
    has_plain_keys,
    is_decimal,
    logical_name,
    millis_of_datetime,
    millis_of_time,
    physical_of_arrow,
    time_of_millis,
)
from penstock.pipeline.columns.sizes import check_schema, value_too_deep
from penstock.pipeline.columns.variant import decode, decode_typed, rescaled

if TYPE_CHECKING:
    from numpy.typing import NDArray

NONE_CLASS: Final[type] = type(None)
_SCHEMA: Final = attrgetter("schema")
_VALUES: Final = attrgetter("values")


# --------------------------------------------------------------------------------------------------------- to Arrow
def to_arrow(values: Sequence[object], schema: Schema | None) -> tuple[pa.Array, dict[int, Exception], Layout]:
    """Builds the column of some values of one schema (None: schemaless).

    Returns:
        The array, as long as ``values``; the errors by position (their slots are null); the physical choice.
    """
    errors: dict[int, Exception] = {}
    try:
        check_schema(schema)
    except DataException as error:
        assert schema is not None
        layout = default_physical(schema)
        return pa.nulls(len(values), arrow_type(schema, layout)), dict.fromkeys(range(len(values)), error), layout
    try:
        array, physical = _build(values, schema)
    except Exception:  # whatever one value provoked: which one it was is found below
        _locate(values, 0, schema, errors)
        good = [None if position in errors else value for position, value in enumerate(values)]
        array, physical = _build(good, schema)
    if schema is None:
        array = _null_where_none(array, values, errors)
    return array, errors, physical


def _locate(values: Sequence[object], start: int, schema: Schema | None, errors: dict[int, Exception]) -> None:
    try:
        _build(values, schema)
    except Exception as error:
        if len(values) == 1:
            errors[start] = _explain(values[0], schema, error)
            return
        middle = len(values) // 2
        _locate(values[:middle], start, schema, errors)
        _locate(values[middle:], start + middle, schema, errors)


def _explain(value: object, schema: Schema | None, error: Exception) -> Exception:
    """Return the DataException that says why a value fits no column of its schema."""
    if schema is not None:
        try:
            validate_value(schema, value)
        except DataException as reason:
            return reason
        except Exception as other:
            error = other
    if isinstance(error, DataException):
        return error
    if isinstance(error, RecursionError):
        return value_too_deep()
    what = "a schemaless value" if schema is None else f"a value of type {schema.type.name}"
    wrapped = DataException(f"Cannot take {what} into the pipeline: {error}")
    wrapped.__cause__ = error
    return wrapped


def _build(values: Sequence[object], schema: Schema | None) -> tuple[pa.Array, Layout]:
    """Return the column of some values and its layout; raise anything when a value does not fit."""
    if schema is None:
        return _build_variants(values), VARIANT
    logical = logical_name(schema)
    if logical is not None:
        return _LOGICAL_BUILDERS[logical](values, schema) if not is_decimal(schema) else _build_decimals(values, schema)
    match schema.type:
        case Type.ARRAY:
            return _build_lists(values, schema)
        case Type.MAP:
            return _build_maps(values, schema)
        case Type.STRUCT:
            return _build_structs(values, schema)
        case Type.STRING:
            return _build_strings(values), SCALAR
        case Type.BYTES:
            return _build_bytes(values), SCALAR
        case kind:
            _require(values, _PLAIN_CLASSES[kind], schema)
            return pa.array(values, arrow_type(schema)), SCALAR


_PLAIN_CLASSES: Final[dict[Type, frozenset[type]]] = {
    **dict.fromkeys((Type.INT8, Type.INT16, Type.INT32, Type.INT64), frozenset((int, NONE_CLASS))),
    **dict.fromkeys((Type.FLOAT32, Type.FLOAT64), frozenset((float, NONE_CLASS))),
    Type.BOOLEAN: frozenset((bool, NONE_CLASS)),
}
_STRINGS: Final = frozenset((str, NONE_CLASS))
_BYTES: Final = frozenset((bytes, NONE_CLASS))
_LISTS: Final[frozenset[type]] = frozenset((list, tuple, NONE_CLASS))
_DICTS: Final[frozenset[type]] = frozenset((dict, NONE_CLASS))
_STRUCTS: Final = frozenset((Struct, NONE_CLASS))
_DECIMALS: Final[frozenset[type]] = frozenset((decimal.Decimal, NONE_CLASS))


def _require(values: Iterable[object], classes: frozenset[type], schema: Schema) -> None:
    """Raise unless all values are of these classes, or (bool for a number apart) of subclasses."""
    for unexpected in set(map(type, values)) - classes:
        if unexpected is bool or not issubclass(unexpected, tuple(classes)):
            raise TypeError(f"{unexpected.__name__} for {schema.type.name}")


def _build_strings(values: Sequence[object]) -> pa.Array:
    # Arrow would take bytes for strings, too.
    for unexpected in set(map(type, values)) - _STRINGS:
        if not issubclass(unexpected, str):
            raise TypeError(f"{unexpected.__name__} for STRING")
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        # Lone surrogates: their three bytes pass through Arrow and Spark unharmed.
        texts = cast("Sequence[str | None]", values)
        encoded = pa.array([None if text is None else text.encode("utf-8", "surrogatepass") for text in texts])
        return pa.Array.from_buffers(pa.string(), len(values), encoded.cast(pa.binary()).buffers())


def _build_bytes(values: Sequence[object]) -> pa.Array:
    classes = set(map(type, values))
    if not classes <= _BYTES:
        for unexpected in classes - _BYTES:
            if not issubclass(unexpected, (bytes, bytearray, memoryview)):
                raise TypeError(f"{unexpected.__name__} for BYTES")
        values = [None if value is None else bytes(cast("bytes", value)) for value in values]
    return pa.array(values, pa.binary())


def _build_integers(
    convert: Callable[[Any], int], plain: type, far: type, storage: pa.DataType
) -> Callable[[Sequence[object], Schema], tuple[pa.Array, Layout]]:
    carried = (int, far)

    def build(values: Sequence[object], schema: Schema) -> tuple[pa.Array, Layout]:
        _require(values, frozenset((plain, far, int, NONE_CLASS)), schema)
        raw = [value if value is None or type(value) in carried else convert(value) for value in values]
        return pa.array(raw, storage), SCALAR

    return build


def _whole_day(value: dt.date) -> int:
    if isinstance(value, dt.datetime) and value.time() != dt.time():
        raise DataException("Kafka Connect Date type should not have any time fields set to non-zero values.")
    return days_of_date(value)


_LOGICAL_BUILDERS: Final = {
    Timestamp.LOGICAL_NAME: _build_integers(millis_of_datetime, dt.datetime, FarTimestamp, pa.int64()),
    Time.LOGICAL_NAME: _build_integers(millis_of_time, dt.time, FarTime, pa.int32()),
    Date.LOGICAL_NAME: _build_integers(_whole_day, dt.date, FarDate, pa.int32()),
}


def _build_decimals(values: Sequence[object], schema: Schema) -> tuple[pa.Array, Layout]:
    _require(values, _DECIMALS, schema)
    numbers = cast("Sequence[decimal.Decimal | None]", values)
    exponents = {number.as_tuple().exponent for number in numbers if number is not None}
    scale = decimal_scale(schema)
    if default_physical(schema) == DECIMAL and exponents <= {-(scale or 0)}:
        try:
            return pa.array(numbers, pa.decimal128(MAX_DECIMAL_DIGITS, scale)), DECIMAL
        except pa.ArrowInvalid:
            pass  # one of more than 38 digits
    pairs = [None if number is None else variant.unscale(number) for number in numbers]
    digits = pa.array([None if pair is None else variant.unscaled_bytes(pair[0]) for pair in pairs], pa.binary())
    scales = pa.array([None if pair is None else pair[1] for pair in pairs], pa.int32())
    array = pa.StructArray.from_arrays([digits, scales], fields=list(UNSCALED_ARROW), mask=_mask(values))
    return array, UNSCALED


def _build_lists(values: Sequence[object], schema: Schema) -> tuple[pa.Array, Layout]:
    _require(values, _LISTS, schema)
    lists = cast("Sequence[list[object] | None]", values)
    child, layout = _build(list(chain.from_iterable(filter(None, lists))), schema.value_schema)
    physical = Layout(LayoutKind.ARRAY, (layout,))
    array = pa.ListArray.from_arrays(_offsets(lists), child, type=arrow_type(schema, physical), mask=_mask(values))
    return array, physical


def _build_maps(values: Sequence[object], schema: Schema) -> tuple[pa.Array, Layout]:
    _require(values, _DICTS, schema)
    maps = cast("Sequence[dict[object, object] | None]", values)
    keys, key_layout = _build(list(chain.from_iterable(filter(None, maps))), schema.key_schema)
    items = list(chain.from_iterable(one.values() for one in maps if one))
    children, value_layout = _build(items, schema.value_schema)
    plain = has_plain_keys(schema) and keys.null_count == 0
    physical = Layout(LayoutKind.MAP if plain else LayoutKind.ENTRIES, (key_layout, value_layout))
    column_type, offsets, mask = arrow_type(schema, physical), _offsets(maps), _mask(values)
    if plain:
        return pa.MapArray.from_arrays(offsets, keys, children, type=column_type, mask=mask), physical
    entries = pa.StructArray.from_arrays([keys, children], fields=list(column_type.value_type))
    return pa.ListArray.from_arrays(offsets, entries, type=column_type, mask=mask), physical


def _build_structs(values: Sequence[object], schema: Schema) -> tuple[pa.Array, Layout]:
    kinds = set(map(type, values))
    if not kinds <= _STRUCTS:
        raise TypeError("not a Struct")
    structs = cast("Sequence[Struct | None]", values)
    there = [one for one in structs if one is not None] if NONE_CLASS in kinds else cast("Sequence[Struct]", structs)
    if not all(map(is_, map(_SCHEMA, there), repeat(schema))):
        for found in {id(one.schema): one.schema for one in there}.values():
            if found != schema:
                raise DataException("Struct schemas do not match.")
    fields = schema.fields
    if not fields:
        return pa.array([None if one is None else {} for one in structs], pa.struct([])), default_physical(schema)
    nothing = [None] * len(fields)
    rows = [nothing if one is None else one.values for one in structs] if there is not structs else map(_VALUES, there)
    columns: Iterable[Sequence[object]] = zip(*rows, strict=True) if structs else [()] * len(fields)
    built = [_build(column, field.schema) for column, field in zip(columns, fields, strict=True)]
    physical = Layout(LayoutKind.STRUCT, tuple(layout for _, layout in built))
    members = list(arrow_type(schema, physical))
    return pa.StructArray.from_arrays([array for array, _ in built], fields=members, mask=_mask(values)), physical


def _build_variants(values: Sequence[object]) -> pa.Array:
    encode = variant.encode
    pairs = [encode(value) for value in values]
    data = pa.array([pair[0] for pair in pairs], pa.binary())
    keys = pa.array([pair[1] for pair in pairs], pa.binary())
    return pa.StructArray.from_arrays([data, keys], fields=list(VARIANT_FIELDS))


def _null_where_none(array: pa.Array, values: Sequence[object], errors: dict[int, Exception]) -> pa.Array:
    """Make missing top-level variants NULL; nested ones stay the variant null, which survives ``toArrow``."""
    missing = [value is None for value in values]
    for position in errors:
        missing[position] = True
    if True not in missing:
        return array
    return pa.StructArray.from_arrays(array.flatten(), fields=list(VARIANT_FIELDS), mask=pa.array(missing))


def _mask(values: Sequence[object]) -> pa.Array | None:
    """Return the nulls as Arrow's constructors want them, None where there is none."""
    if NONE_CLASS not in set(map(type, values)):
        return None
    return pa.array([value is None for value in values], pa.bool_())


def _offsets(values: Sequence[Any]) -> pa.Array:
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    sizes = [0 if one is None else len(one) for one in values] if None in values else list(map(len, values))
    np.cumsum(sizes, out=offsets[1:])
    return pa.array(offsets)


# ------------------------------------------------------------------------------------------------------- from Arrow
def from_arrow(
    array: pa.Array | pa.ChunkedArray, schema: Schema | None, physical: Layout | None = None
) -> list[object]:
    """The values of a column: Structs, dates and times, decimals; ``physical`` None reads it from the type.

    Temporal values that Python's classes cannot hold are their raw integers. A malformed variant raises DataException.
    """
    whole = _one_chunk(array)
    return _read(whole, schema, physical_of_arrow(whole.type, schema) if physical is None else physical)


def _one_chunk(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    array = one_array(array)
    # Children of a sliced array know nothing of the slice: a copy does away with it.
    return pa.concat_arrays([array]) if array.offset and pa.types.is_nested(array.type) else array


def _read(array: pa.Array, schema: Schema | None, physical: Layout) -> list[object]:
    match physical.form:
        case LayoutKind.VARIANT:
            return _read_variants(array, schema)
        case LayoutKind.SCALAR | LayoutKind.DECIMAL:
            return _read_scalars(array, schema)
        case LayoutKind.UNSCALED:
            pairs = zip(array.field(0).to_pylist(), array.field(1).to_pylist(), strict=True)
            return [
                None if data is None or scale is None else rescaled(int.from_bytes(data, "big", signed=True), scale)
                for data, scale in pairs
            ]
    assert schema is not None, "only a schema has nested layouts"
    match physical.form:
        case LayoutKind.ARRAY:
            items = _read(_one_chunk(array.values), schema.value_schema, physical.children[0])
            return [None if span is None else items[span[0] : span[1]] for span in _spans(array)]
        case LayoutKind.STRUCT:
            return _read_structs(array, schema, physical)
        case LayoutKind.OBJECT:
            return _read_objects(array, schema, physical)
        case _:
            return _read_maps(array, schema, physical)


def _read_variants(array: pa.Array, schema: Schema | None) -> list[object]:
    data = array.field(array.type.get_field_index("value")).to_pylist()
    keys = array.field(array.type.get_field_index("metadata")).to_pylist()
    if array.null_count:
        present = array.is_valid().to_pylist()
        data = [one if there else None for one, there in zip(data, present, strict=True)]
    if schema is None:
        return [decode(one, key) if one else None for one, key in zip(data, keys, strict=True)]
    return [decode_typed(one, key, schema) if one else None for one, key in zip(data, keys, strict=True)]


_TEMPORAL: Final[dict[str, Callable[[int], object]]] = {
    Timestamp.LOGICAL_NAME: datetime_of_millis,
    Time.LOGICAL_NAME: time_of_millis,
    Date.LOGICAL_NAME: date_of_days,
}


def _read_scalars(array: pa.Array, schema: Schema | None) -> list[object]:
    try:
        values = cast("list[object]", array.to_pylist())
    except UnicodeDecodeError:
        raw = pa.Array.from_buffers(pa.binary(), len(array), array.buffers(), offset=array.offset).to_pylist()
        return [None if data is None else _lenient_text(data) for data in raw]
    name = None if schema is None else logical_name(schema)
    convert = None if name is None else _TEMPORAL.get(name)
    if convert is None:
        return values
    return [None if value is None else convert(cast("int", value)) for value in values]


def _lenient_text(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def _spans(array: pa.Array) -> list[tuple[int, int] | None]:
    bounds: NDArray[np.int32] = array.offsets.to_numpy()
    ends = bounds.tolist()
    spans: list[tuple[int, int] | None] = list(pairwise(ends))
    if array.null_count:
        present = array.is_valid().to_pylist()
        return [span if there else None for span, there in zip(spans, present, strict=True)]
    return spans


def _read_maps(array: pa.Array, schema: Schema, physical: Layout) -> list[object]:
    if physical.form is LayoutKind.MAP:
        key_column, value_column = array.keys, array.items
    else:
        entries = _one_chunk(array.values)
        key_column, value_column = entries.field(0), entries.field(1)
    keys = _read(_one_chunk(key_column), schema.key_schema, physical.children[0])
    values = _read(_one_chunk(value_column), schema.value_schema, physical.children[1])
    if physical.form is LayoutKind.ENTRIES:
        keys = [map_key(key) for key in keys]
    return [
        None if span is None else dict(zip(keys[span[0] : span[1]], values[span[0] : span[1]], strict=True))
        for span in _spans(array)
    ]


def _read_objects(array: pa.Array, schema: Schema, physical: Layout) -> list[object]:
    names = [field.name for field in schema.fields]
    pairs = zip(schema.fields, physical.children, strict=True)
    columns = [_read(_one_chunk(array.field(field.index)), field.schema, layout) for field, layout in pairs]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    if not array.null_count:
        return cast("list[object]", rows)
    present = array.is_valid().to_pylist()
    return [row if there else None for row, there in zip(rows, present, strict=True)]


def _read_structs(array: pa.Array, schema: Schema, physical: Layout) -> list[object]:
    pairs = zip(schema.fields, physical.children, strict=True)
    columns = [_read(_one_chunk(array.field(field.index)), field.schema, layout) for field, layout in pairs]
    rows: Iterable[tuple[object, ...]] = zip(*columns, strict=True) if columns else [()] * len(array)
    make, made = Struct.__new__, []
    # A call of a function for each struct takes as long as the rest of this.
    for row in rows:
        one: Struct = make(Struct)
        one.schema = schema
        one.values = list(row)
        made.append(one)
    if not array.null_count:
        return cast("list[object]", made)
    present = array.is_valid().to_pylist()
    return [row if there else None for row, there in zip(made, present, strict=True)]


# ------------------------------------------------------------------------------------------------- to other processes
def table_bytes(table: pa.Table) -> pa.Buffer:
    """A table as an Arrow stream. Pickled, a slice would take the memory of the whole table with it."""
    rows = pa.BufferOutputStream()
    with pa.ipc.new_stream(rows, table.schema) as stream:
        stream.write_table(table)
    return rows.getvalue()


def table_of(rows: pa.Buffer) -> pa.Table:
    """The table of such a stream; its columns use the stream's memory."""
    with pa.ipc.open_stream(rows) as stream:
        return stream.read_all()
