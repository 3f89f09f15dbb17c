"""What each format makes of values of every type."""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from tests.unit.connectors.files.writing import frame, schemaless

from penstock.connectors.files.columns import columns_of
from penstock.connectors.files.sink.avro import AvroFormat, missing_library
from penstock.connectors.files.sink.formats import (
    BytesFormat,
    CsvFormat,
    Format,
    JsonLinesFormat,
    OrcFormat,
    ParquetFormat,
)
from penstock.data import STRING_SCHEMA, SchemaBuilder
from penstock.errors import DataException

UTC = datetime.UTC
COLUMNS: dict[str, pa.Array] = {
    "small": pa.array([1, None], pa.int8()),
    "long": pa.array([1 << 62, None]),
    "single": pa.array([1.5, None], pa.float32()),
    "double": pa.array([float("nan"), None]),
    "flag": pa.array([True, None]),
    "text": pa.array(['ä\n"', None]),
    "raw": pa.array([b"\x00\xff", None]),
    "price": pa.array([Decimal("-1.50"), None], pa.decimal128(38, 2)),
    "at": pa.array([datetime.datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC), None], pa.timestamp("ms", "UTC")),
    "day": pa.array([datetime.date(1969, 12, 31), None]),
    "time": pa.array([datetime.time(1, 2, 3, 4000), None], pa.time32("ms")),
    "list": pa.array([[1, None], None]),
    "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
    "inner": pa.array([{"a b": [{"c": 1}]}, None]),
}
SCHEMA = SchemaBuilder.struct().field("any", STRING_SCHEMA).build()


def written(form: Format, given: Any) -> bytes:
    table = form.prepare(given)
    out = io.BytesIO()
    form.write(iter([table.slice(0, 1), table.slice(1)]), table.schema, out)
    assert not out.closed
    return out.getvalue()


def every_type() -> Any:
    return frame(pa.StructArray.from_arrays(list(COLUMNS.values()), list(COLUMNS)), SCHEMA)


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
def test_parquet_has_every_type_as_it_is(codec: str) -> None:
    form = ParquetFormat(compression=codec)
    assert form.name_end == ("" if codec == "none" else f".{codec}") + ".parquet"
    found = pq.read_table(io.BytesIO(written(form, every_type())))
    for name, column in COLUMNS.items():
        assert found.column(name).type == column.type
        assert str(found.column(name).to_pylist()) == str(column.to_pylist())


def test_orc_has_every_type_but_times_of_day() -> None:
    found = orc.ORCFile(io.BytesIO(written(OrcFormat(), every_type()))).read()
    assert found.column("time").to_pylist() == [3_723_004, None]
    for name in COLUMNS.keys() - {"time"}:
        assert repr(found.column(name).cast(COLUMNS[name].type).to_pylist()) == repr(COLUMNS[name].to_pylist()), name


def test_parquet_leaves_out_what_has_no_type_and_keeps_the_rows() -> None:
    value = pa.array([{"a": 1, "none": None, "empty": {}, "deep": {"x": None, "y": 1}, "list": []}, {"a": 2}])
    found = pq.read_table(io.BytesIO(written(ParquetFormat(), frame(value, None))))
    assert found.to_pylist() == [
        {"a": 1, "deep": {"y": 1}, "list": []},
        {"a": 2, "deep": None, "list": None},
    ]
    nothing = pq.read_table(io.BytesIO(written(ParquetFormat(), frame(pa.array([{"a": None}, {"a": None}]), None))))
    assert nothing.to_pylist() == [{"a": None}, {"a": None}]


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd", "bz2"])
def test_json_is_that_of_the_converter_without_schemas(compression: str) -> None:
    raw = written(JsonLinesFormat(compression=compression), every_type())
    text = raw if compression == "none" else pa.input_stream(io.BytesIO(raw), compression=compression).read()
    first, second = (json.loads(line) for line in text.splitlines())
    assert second == dict.fromkeys(COLUMNS)
    assert first == {
        "small": 1, "long": 1 << 62, "single": 1.5, "double": None, "flag": True, "text": "ä\n\"", "raw": "AP8=",
        "price": -1.5, "at": 1767323045678, "day": -1, "time": 3723004, "list": [1, None], "map": {"k": 1},
        "inner": {"a b": [{"c": 1}]},
    }  # fmt: skip
    assert b'"price":-1.50' in text


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
def test_avro_has_every_type_with_names_that_avro_takes(codec: str) -> None:
    assert missing_library(codec) == ""
    first, second = fastavro.reader(io.BytesIO(written(AvroFormat(codec), every_type())))
    assert second == dict.fromkeys(COLUMNS)
    expected: dict[str, Any] = {name: column.to_pylist(maps_as_pydicts="lossy")[0] for name, column in COLUMNS.items()}
    expected["inner"] = {"a_b": [{"c": 1}]}
    assert isinstance(first, dict)
    assert str((first.pop("double"), expected.pop("double"))) == "(nan, nan)"
    assert first == expected


def test_avro_says_which_library_a_codec_needs() -> None:
    assert "snappyy" in missing_library("snappyy")


def test_avro_keeps_nulls_and_slices_under_new_names() -> None:
    kind = pa.map_(pa.string(), pa.struct([("x-y", pa.list_(pa.struct([("z.z", pa.int64())])))]))
    values: list[Any] = [[("k", {"x-y": [{"z.z": 1}, None]})], None, [("l", {"x-y": None}), ("m", None)], []]
    value = pa.StructArray.from_arrays([pa.array(values, kind)], ["m"])
    rows = list(fastavro.reader(io.BytesIO(written(AvroFormat(), frame(value.slice(1), SCHEMA)))))
    assert rows == [{"m": None}, {"m": {"l": {"x_y": None}, "m": None}}, {"m": {}}]
    (row,) = fastavro.reader(io.BytesIO(written(AvroFormat(), frame(value.slice(0, 1), SCHEMA))))
    assert row == {"m": {"k": {"x_y": [{"z_z": 1}, None]}}}


def test_csv_has_cells_for_every_type() -> None:
    found = pyarrow.csv.read_csv(
        io.BytesIO(written(CsvFormat(), every_type())), parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True)
    )
    row = found.to_pylist()[0]
    assert row["inner"] == '{"a b":[{"c":1}]}'
    assert row["raw"] == "AP8="
    assert row["text"] == 'ä\n"'
    assert found.num_rows == 2


def test_bytes_take_bytes_and_text_and_nothing_else() -> None:
    assert written(BytesFormat(b"\r\n"), frame(pa.array([b"\x00", b"b"]), None)) == b"\x00\r\nb\r\n"
    assert written(BytesFormat(), frame(schemaless(["a", {"b": 1}]), None)) == b'a\n{"b":1}\n'
    assert BytesFormat(extension=".txt", compression="gzip").name_end == ".txt.gz"
    with pytest.raises(DataException, match="ByteArrayConverter"):
        written(BytesFormat(), frame(pa.array([1, 2]), None))


@pytest.mark.parametrize(
    "values", [pa.array([1, 2]), pa.array([[1], None]), schemaless([1, 2]), schemaless(["a", "b"])]
)
def test_values_that_are_no_structs_are_one_column(values: pa.Array) -> None:
    assert columns_of(frame(values, None), (), "").column_names == ["value"]


def test_a_field_with_the_name_of_a_metadata_column_is_an_error() -> None:
    with pytest.raises(DataException, match=r"metadata\.columns\.prefix"):
        columns_of(frame(pa.array([{"kafka_offset": 1}]), None), ("offset",), "kafka_")


def test_metadata_is_beside_the_fields_of_json_and_beside_a_value_that_has_none() -> None:
    form = JsonLinesFormat(("key", "offset"))
    line = written(form, frame(pa.array([{"a": 1}]), SCHEMA, first=9, keys=["k"]))
    assert json.loads(line) == {"a": 1, "kafka_key": "k", "kafka_offset": 9}
    line = written(form, frame(pa.array([5]), None, keys=["k"]))
    assert json.loads(line) == {"value": 5, "kafka_key": "k", "kafka_offset": 0}


def test_fields_whose_names_avro_makes_equal_keep_their_values() -> None:
    inner = pa.array([{"x y": 1, "x_y": 2}])
    table = pa.table({"a-b": [1], "a_b": [2], "a b": inner})
    out = io.BytesIO()

    AvroFormat().write(iter([table]), table.schema, out)

    out.seek(0)
    assert list(fastavro.reader(out)) == [{"a_b_2": 1, "a_b": 2, "a_b_3": {"x_y_2": 1, "x_y": 2}}]
