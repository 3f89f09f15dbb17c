"""Avro container files. Main type: ``AvroFormat``; needs fastavro. Any thread.

Source: the Avro specification, "Object Container Files" and "Logical Types".
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import count
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.api.arrow import is_bytes, is_list, is_text, one_array
from penstock.connectors.files.sink.formats import Format

_RECORD: Final = "ConnectDefault"


class AvroFormat(Format):
    """Avro container files: each row a record, whose fields may all be null.

    Args:
        codec: ``null``, ``deflate``, ``bzip2``, ``snappy`` or ``zstandard``.
        metadata: See ``Format``.
        prefix: See ``Format``.
    """

    extension = ".avro"

    def __init__(self, codec: str = "null", metadata: Sequence[str] = (), prefix: str = "kafka_") -> None:
        super().__init__(metadata, prefix)
        self._codec = codec

    def write(self, tables: Iterator[pa.Table], schema: pa.Schema, out: Any) -> None:
        """See ``Format``."""
        from fastavro import parse_schema, writer

        parsed = parse_schema(_type(pa.struct(list(schema)), _RECORD))
        rows = (row for table in tables for row in _renamed(table).to_pylist(maps_as_pydicts="lossy"))
        metadata = {name.decode(): text.decode() for name, text in (schema.metadata or {}).items()}
        writer(out, parsed, rows, codec=self._codec, metadata=metadata)


def missing_library(codec: str) -> str:
    """A text that names the library which a codec lacks; empty if none is missing."""
    if not find_spec("fastavro"):
        return "Avro needs the library fastavro: pip install 'penstock[avro]'"
    import fastavro

    schema = {"type": "record", "name": "Nothing", "fields": []}
    try:
        fastavro.writer(io.BytesIO(), schema, [{}], codec=codec)
    except ValueError as error:
        return f"{error}: pip install 'penstock[avro]'"
    return ""


def _renamed(table: pa.Table) -> pa.Table:
    """The same rows, with names of fields that Avro allows, at every depth."""
    columns = [one_array(column) for column in table.columns]
    return pa.table([_retyped(one, _renamed_type(one.type)) for one in columns], _names(table.column_names))


def _renamed_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct(
            [pa.field(name, _renamed_type(one.type)) for name, one in zip(_names(kind.names), kind, strict=True)]
        )
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _renamed_type(kind.item_type))
    return pa.list_(_renamed_type(kind.value_type)) if pa.types.is_list(kind) else kind


def _retyped(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Converts an array to a type that differs only in names; a cast would not find the fields of the new names."""
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        members = [_retyped(pc.struct_field(array, [index]), one.type) for index, one in enumerate(kind)]
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=array.is_null())
    if pa.types.is_map(kind):
        items = [array.keys, _retyped(array.items, kind.item_type)]
        child = pa.StructArray.from_arrays(items, fields=[kind.key_field, kind.item_field])
    else:
        child = _retyped(array.values, kind.value_type)
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, array.offset, [child])


def _names(names: Iterable[str]) -> list[str]:
    """Converts names for Avro: invalid characters become underscores, and names that would be equal get numbers.

    >>> _names(["a_b", "a-b", "1", "a b"])
    ['a_b', 'a_b_2', '_1', 'a_b_3']
    """
    given = list(names)
    made = {name: name for name in given if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)}
    used = set(made)
    for name in given:
        if name not in made:
            found = re.sub(r"^(?![A-Za-z_])", "_", re.sub(r"[^A-Za-z0-9_]", "_", name))
            others = (f"{found}_{at}" for at in count(2))
            made[name] = found if found not in used else next(one for one in others if one not in used)
            used.add(made[name])
    return [made[name] for name in given]


def _optional(kind: pa.DataType, path: str) -> Any:
    found = _type(kind, path)
    return found if found == "null" else ["null", found]


def _type(kind: pa.DataType, path: str) -> Any:
    if pa.types.is_struct(kind):
        fields = [
            {"name": name, "type": _optional(one.type, f"{path}_{name}"), "default": None}
            for name, one in zip(_names(kind.names), kind, strict=True)
        ]
        return {"type": "record", "name": path, "fields": fields}
    if pa.types.is_map(kind):
        return {"type": "map", "values": _optional(kind.item_type, f"{path}_value")}
    if is_list(kind):
        return {"type": "array", "items": _optional(kind.value_type, f"{path}_item")}
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": f"timestamp-{'millis' if kind.unit in ('s', 'ms') else 'micros'}"}
    if pa.types.is_date(kind):
        return {"type": "int", "logicalType": "date"}
    if pa.types.is_time(kind):
        return {"type": "int", "logicalType": "time-millis"}
    if pa.types.is_null(kind):
        return "null"
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_integer(kind):
        return "long" if kind.bit_width == 64 else "int"
    if pa.types.is_floating(kind):
        return "double" if kind.bit_width == 64 else "float"
    return "bytes" if is_bytes(kind) or not is_text(kind) else "string"
