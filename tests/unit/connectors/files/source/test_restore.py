"""What the file sink wrote comes back as it was: keys, headers, times, partitions and schemas."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer
from tests.unit.connectors.files.source.test_task import plain
from tests.unit.connectors.files.writing import Context

from penstock.api import OffsetAndMetadata, SinkFrame, TopicPartition
from penstock.connectors.files import FileSource
from penstock.connectors.files.sink.task import FileSinkTask
from penstock.data import (
    BYTES_SCHEMA,
    FLOAT32_SCHEMA,
    INT8_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Date,
    Schema,
    SchemaBuilder,
    Timestamp,
)
from penstock.data import Decimal as DecimalSchema
from penstock.errors import ConnectException
from penstock.testing import run_source

#: Some of them take more than a second.
pytestmark = pytest.mark.slow

ITEM = SchemaBuilder.struct().name("Item").field("sku", STRING_SCHEMA).field("count", INT8_SCHEMA).build()
ORDER = (
    SchemaBuilder.struct()
    .name("Order")
    .version(3)
    .doc("An order.")
    .field("id", INT64_SCHEMA)
    .field("note", OPTIONAL_STRING_SCHEMA)
    .field("price", DecimalSchema.builder(2).build())
    .field("day", Date.SCHEMA)
    .field("at", Timestamp.SCHEMA)
    .field("weight", FLOAT32_SCHEMA)
    .field("raw", BYTES_SCHEMA)
    .field("items", SchemaBuilder.array(ITEM).build())
    .field("tags", SchemaBuilder.map(STRING_SCHEMA, INT64_SCHEMA).optional().build())
    .build()
)
KIND = pa.struct(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("note", pa.string()),
        pa.field("price", pa.decimal128(38, 2), nullable=False),
        pa.field("day", pa.date32(), nullable=False),
        pa.field("at", pa.timestamp("ms", "UTC"), nullable=False),
        pa.field("weight", pa.float32(), nullable=False),
        pa.field("raw", pa.binary(), nullable=False),
        pa.field(
            "items",
            pa.list_(
                pa.field(
                    "element",
                    pa.struct(
                        [pa.field("sku", pa.string(), nullable=False), pa.field("count", pa.int8(), nullable=False)]
                    ),
                    nullable=False,
                )
            ),
            nullable=False,
        ),
        pa.field("tags", pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))),
    ]
)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def orders(count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": number,
            "note": None if number % 3 else f"n{number}",
            "price": Decimal(number) / 100,
            "day": datetime.date(2026, 1, 1 + number % 28),
            "at": datetime.datetime(2026, 1, 1, 12, 0, number % 60, 123000, tzinfo=datetime.UTC),
            "weight": number + 0.5,
            "raw": bytes([number % 256, 0]),
            "items": [{"sku": f"s{one}", "count": one} for one in range(number % 3)],
            "tags": [("a", number)] if number % 2 else None,
        }
        for number in range(count)
    ]


class Topic:
    """A topic of three partitions, in a sink task that writes it into files."""

    def __init__(self, settings: dict[str, str]) -> None:
        props = {"name": "s", "topics": "t", "rotate.schedule.interval.ms": "-1", "flush.size": "7", **settings}
        self.context = Context(props, tolerant=False)
        self.task = FileSinkTask()
        self.task.initialize(self.context)
        self.task.start(props)
        self.task.open([TopicPartition("t", one) for one in range(3)])

    def write(self, values: pa.Array, schema: Schema | None, keys: pa.Array, key_schema: Schema | None) -> None:
        """Puts each value to the partition of its number, with a header and a time, and closes all files."""
        count = len(values)
        headers = [[{"key": "h", "value": bytes([number % 256])}] for number in range(count)]
        columns = {
            "topic": ["t"] * count,
            "partition": pa.array([number % 3 for number in range(count)], pa.int32()),
            "offset": pa.array([number // 3 for number in range(count)], pa.int64()),
        }
        table = pa.table(
            {
                **columns,
                "timestamp": pa.array([1_700_000_000_000 + number for number in range(count)], pa.int64()),
                "key": keys,
                "value": values,
                "headers": pa.array(headers, HEADERS),
            }
        )
        self.task.put(SinkFrame(table, key_schema, schema, origin=pa.table(columns), _context=self.context))
        self.context.closing = True
        self.task.pre_commit({TopicPartition("t", one): OffsetAndMetadata(count) for one in range(3)})


def restored(settings: dict[str, str], tasks: int = 2) -> dict[int, list[tuple[Any, ...]]]:
    """What comes back, in order, by partition."""
    with run_source(
        FileSource, {"file.minimum.age.ms": "0", "empty.poll.wait.ms": "10", **settings}, tasks_max=tasks, timeout_s=10
    ) as run:
        run.finish()
    found: dict[int, list[tuple[Any, ...]]] = {}
    for one in run.records:
        headers = [(header.key, header.value) for header in one.headers]
        row = (one.topic, plain(one.key), one.key_schema, plain(one.value), one.value_schema, one.timestamp, headers)
        found.setdefault(one.kafka_partition or 0, []).append(row)
    return found


def expected(values: list[Any], schema: Schema | None, key_schema: Schema | None) -> dict[int, list[tuple[Any, ...]]]:
    found: dict[int, list[tuple[Any, ...]]] = {}
    for number, value in enumerate(values):
        headers = [("h", bytes([number % 256]))]
        row = ("t", f"k{number}", key_schema, value, schema, 1_700_000_000_000 + number, headers)
        found.setdefault(number % 3, []).append(row)
    return found


def without_schemas(rows: dict[int, list[tuple[Any, ...]]]) -> dict[int, list[tuple[Any, ...]]]:
    return {one: [(row[0], row[1], row[3], *row[5:]) for row in lines] for one, lines in rows.items()}


def as_read(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "tags": dict(row["tags"]) if row["tags"] else None}


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The address of an S3."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["directory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    if request.param == "directory":
        return {"url": str(tmp_path)}
    url = request.getfixturevalue("s3")
    client = boto3.client(
        "s3", endpoint_url=url, aws_access_key_id="id", aws_secret_access_key="secret", region_name="us-east-1"
    )
    bucket = f"archive-{uuid.uuid4().hex}"
    client.create_bucket(Bucket=bucket)
    client.close()
    return {
        "s3.bucket.name": bucket,
        "store.url": url,
        "aws.access.key.id": "id",
        "aws.secret.access.key": "secret",
        "s3.region": "us-east-1",
    }


def formats(*names: str) -> pytest.MarkDecorator:
    """Files of each format in a directory, and those of the first one in S3, too."""
    places = [("directory", one) for one in names]
    return pytest.mark.parametrize(("place", "kind"), [*places, ("s3", names[0])], indirect=["place"])


@formats("parquet", "avro", "orc")
def test_a_topic_comes_back_as_it_was(place: dict[str, str], kind: str) -> None:
    rows = orders(50)
    topic = Topic({**place, "format.class": kind, "metadata.columns": "key,headers,timestamp,offset,partition,topic"})
    topic.write(pa.array(rows, KIND), ORDER, pa.array([f"k{one}" for one in range(50)]), STRING_SCHEMA)

    found = restored(place)

    wanted = expected([as_read(row) for row in rows], ORDER, STRING_SCHEMA)
    if kind == "orc":
        # It has no place for schemas.
        found, wanted = without_schemas(found), without_schemas(wanted)
    assert found == wanted


def test_a_topic_comes_back_from_files_of_commits_in_its_partitions_and_in_order(place: dict[str, str]) -> None:
    rows = orders(50)
    topic = Topic(
        {**place, "layout": "manifest", "flush.size": "20", "metadata.columns": "key,headers,timestamp,partition"}
    )
    topic.write(pa.array(rows, KIND), ORDER, pa.array([f"k{one}" for one in range(50)]), STRING_SCHEMA)

    assert restored(place) == expected([as_read(row) for row in rows], ORDER, STRING_SCHEMA)


def test_files_of_commits_that_do_not_count_do_not_come_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = {"url": str(tmp_path)}
    topic = Topic({**place, "layout": "manifest", "metadata.columns": "partition"})
    topic.write(pa.array(list(range(6))), INT64_SCHEMA, pa.array(["k"] * 6), STRING_SCHEMA)
    (whole,) = (tmp_path / "topics" / "t").iterdir()
    ended = whole.name.partition(".")[0]
    for other, manifest in (("1600000000000-00000000", b"{}"), ("1600000000001-00000000", None)):
        (whole.parent / whole.name.replace(ended, other)).write_bytes(whole.read_bytes())
        if manifest is not None:
            (tmp_path / "topics" / "_manifests" / "s" / f"{other}.json").write_bytes(manifest)

    found = restored(place)

    assert {one: [row[3] for row in rows] for one, rows in found.items()} == {0: [0, 3], 1: [1, 4], 2: [2, 5]}
    assert "belongs to a commit without a manifest" in caplog.text


def test_a_restore_of_commits_that_do_not_tell_partitions_says_what_to_do(tmp_path: Path) -> None:
    place = {"url": str(tmp_path)}
    topic = Topic({**place, "layout": "manifest", "metadata.columns": "key"})
    topic.write(pa.array(list(range(6))), INT64_SCHEMA, pa.array([f"k{one}" for one in range(6)]), STRING_SCHEMA)

    with pytest.raises(ConnectException, match=r"no column kafka_partition.*metadata\.columns=key,headers"):
        restored(place)
    found = restored({**place, "metadata.columns": "key"})

    assert [(row[1], row[3]) for row in found[0]] == [(f"k{one}", one) for one in (0, 3, 1, 4, 2, 5)]


KEY = SchemaBuilder.struct().name("Key").version(2).field("id", INT64_SCHEMA).build()
KEYS: dict[str, tuple[pa.Array, Schema | None, list[Any]]] = {
    "text": (pa.array([f"k{one}" for one in range(50)]), STRING_SCHEMA, [f"k{one}" for one in range(50)]),
    "struct": (
        pa.array([{"id": one} for one in range(50)], pa.struct([pa.field("id", pa.int64(), nullable=False)])),
        KEY,
        [{"id": one} for one in range(50)],
    ),
    "some": (
        pa.array([f"k{one}" if one % 2 else None for one in range(50)]),
        OPTIONAL_STRING_SCHEMA,
        [f"k{one}" if one % 2 else None for one in range(50)],
    ),
    "none": (pa.nulls(50, pa.string()), None, [None] * 50),
}


@pytest.mark.parametrize("layout", ["offsets", "manifest"])
@pytest.mark.parametrize("kind", ["avro", "parquet", "json", "orc"])
@pytest.mark.parametrize("keys", list(KEYS))
def test_keys_and_headers_in_files_beside_come_back(tmp_path: Path, layout: str, kind: str, keys: str) -> None:
    place = {"url": str(tmp_path)}
    column, key_schema, wanted = KEYS[keys]
    beside = {"store.kafka.keys": "true", "store.kafka.headers": "true"} | {
        f"{one}.format.class": kind for one in ("keys", "headers")
    }
    topic = Topic({**place, **beside, "layout": layout, "metadata.columns": "timestamp,partition", "flush.size": "20"})
    rows = orders(50)
    topic.write(pa.array(rows, KIND), ORDER, column, key_schema)

    found = restored(place)

    told = kind in ("avro", "parquet") and key_schema is not None
    values = {
        one: [(*row[1:4], *row[4:]) if told else (row[1], *row[3:]) for row in lines] for one, lines in found.items()
    }
    after: dict[int, list[tuple[Any, ...]]] = {}
    for number, row in enumerate(rows):
        key = (wanted[number], key_schema) if told else (wanted[number],)
        after.setdefault(number % 3, []).append(
            (*key, as_read(row), ORDER, 1_700_000_000_000 + number, [("h", bytes([number % 256]))])
        )
    assert values == after


@formats("parquet", "avro", "json", "csv", "orc")
def test_files_beside_belong_to_those_of_any_format_however_their_names_sort(place: dict[str, str], kind: str) -> None:
    topic = Topic({**place, "format.class": kind, "store.kafka.keys": "true"})
    ids = pa.struct([("id", pa.int64())])
    topic.write(pa.array([{"id": one} for one in range(50)], ids), None, KEYS["text"][0], STRING_SCHEMA)

    found = restored(place)

    assert {one: [(row[1], row[3]["id"]) for row in rows] for one, rows in found.items()} == {
        one: [(f"k{number}", number) for number in range(one, 50, 3)] for one in range(3)
    }


def test_files_beside_are_passed_over_moved_and_checked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = {"url": str(tmp_path / "archive")}
    topic = Topic({**place, "store.kafka.keys": "true", "flush.size": "2"})
    topic.write(pa.array(list(range(6))), INT64_SCHEMA, KEYS["text"][0].slice(0, 6), STRING_SCHEMA)
    without = restored({**place, "store.kafka.keys": "false"})
    assert [(row[1], row[3]) for rows in without.values() for row in rows] == [
        (None, one) for one in (0, 3, 1, 4, 2, 5)
    ]

    _, second, third = sorted((tmp_path / "archive").rglob("*.keys.avro"))
    second.write_bytes(b"none")
    third.unlink()
    found = restored({**place, "finished.path": "done", "error.path": "bad"}, tasks=1)

    assert [(row[1], row[3]) for row in found[0]] == [("k0", 0), ("k3", 3)]
    assert 1 not in found
    assert [(row[1], row[3]) for row in found[2]] == [(None, 2), (None, 5)]
    assert f"has its keys in {second.name}, which" in caplog.text
    assert "store.kafka.keys=false would restore it" in caplog.text


def test_texts_and_numbers_come_back_as_such(place: dict[str, str]) -> None:
    topic = Topic({**place, "metadata.columns": "key,headers,timestamp"})
    topic.write(pa.array(list(range(20))), INT64_SCHEMA, pa.array([f"k{one}" for one in range(20)]), STRING_SCHEMA)

    found = restored({**place, "mode": "RESTORE_BACKUP"})

    assert {one: [row[3] for row in rows] for one, rows in found.items()} == {
        one: list(range(one, 20, 3)) for one in range(3)
    }
