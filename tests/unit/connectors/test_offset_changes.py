"""Offsets that users set are checked by each source before they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import pytest

from penstock.api import SourceConnector
from penstock.connectors.datagen import DatagenSource
from penstock.connectors.directory import DirectorySourceConnector
from penstock.connectors.file import FileStreamSourceConnector
from penstock.connectors.files import FileSource
from penstock.connectors.http import HttpSource
from penstock.connectors.jdbc import JdbcSource
from penstock.connectors.mirror import MirrorCheckpoint, MirrorHeartbeat, MirrorSource
from penstock.connectors.spark import SparkSource
from penstock.connectors.tables import TableSource
from penstock.errors import ConnectException

Case: TypeAlias = tuple[type[SourceConnector], Mapping[str, str], Mapping[str, Any], Mapping[str, Any]]

JDBC = {"connection.url": "jdbc:sqlite:a.db", "topic.prefix": "t-", "mode": "incrementing"}
LISTED = {**JDBC, "table.include.list": "orders"}
QUERY = {**JDBC, "query": "SELECT 1", "incrementing.column.name": "id"}
SPARK = {"spark.format": "csv", "spark.path": "/in", "topic": "t"}
FILES, VERSIONS = {**SPARK, "mode": "files"}, {**SPARK, "spark.format": "delta", "mode": "versions"}
ROWS = {**SPARK, "mode": "incrementing", "incrementing.column.name": "id"}
TABLES = {"url": "/lake", "tables": "orders,people", "topic.prefix": "t-"}
HTTP = {"http.api.url": "http://h/items", "topic": "t"}

TABLE = {"protocol": "1", "table": "orders"}
OF_FILES, OF_VERSIONS = {"source": "/in", "mode": "files"}, {"source": "/in", "mode": "versions"}
OF_ROWS = {"source": "/in", "mode": "incrementing"}
HEARTBEAT = {"sourceClusterAlias": "a", "targetClusterAlias": "b"}
CHECKPOINT = {"group": "g", "topic": "t", "partition": 0}
MIRRORED = {"cluster": "a", "partition": 0, "topic": "t"}
LEDGER = {"done": "VG15McadQA==", "blocks": 0}

GOOD: list[Case] = [
    (JdbcSource, JDBC, TABLE, {"incrementing": 5}),
    (JdbcSource, LISTED, TABLE, {"incrementing": -5}),
    (JdbcSource, LISTED, {"protocol": "1", "table": "main.orders"}, {"timestamp": -1, "timestamp_nanos": 999_999_999}),
    (JdbcSource, QUERY, {"query": "query"}, {"incrementing": 5}),
    (FileSource, {}, {"log": 6}, LEDGER),
    (FileSource, {}, {"log": 6, "block": 0}, {"done": "VG15McadQA=="}),
    (TableSource, TABLES, {"table": "people"}, {"version": 3}),
    (TableSource, TABLES, {"table": "orders"}, {"version": 3, "of": 4, "whole": False, "file": 1, "row": 5}),
    (SparkSource, FILES, OF_FILES, {"through": 5, "names": "[]"}),
    (SparkSource, VERSIONS, OF_VERSIONS, {"version": 0}),
    (SparkSource, ROWS, OF_ROWS, {"column": "id", "value": 7}),
    (HttpSource, HTTP, {"url": "http://h/items"}, {"page": 3, "offset": "7"}),
    (MirrorSource, {}, MIRRORED, {"offset": 5}),
    (MirrorHeartbeat, {}, HEARTBEAT, {"offset": 0}),
    (MirrorCheckpoint, {}, CHECKPOINT, {"offset": 0}),
    (DatagenSource, {}, {"task.id": 0}, {"current.iteration": 5}),
    (DirectorySourceConnector, {}, {"filename": "/a"}, {"position": 5}),
    (FileStreamSourceConnector, {"file": "/a"}, {"filename": "/a"}, {"position": 5}),
]

BAD: list[Case] = [
    (JdbcSource, JDBC, {"table": "orders"}, {"incrementing": 5}),
    (JdbcSource, JDBC, {"protocol": 1, "table": "orders"}, {"incrementing": 5}),
    (JdbcSource, JDBC, {"query": "query"}, {"incrementing": 5}),
    (JdbcSource, QUERY, TABLE, {"incrementing": 5}),
    (JdbcSource, LISTED, {"protocol": "1", "table": "people"}, {"incrementing": 5}),
    (JdbcSource, {**JDBC, "table.blacklist": "orders"}, TABLE, {"incrementing": 5}),
    (JdbcSource, JDBC, TABLE, {"incrementing": "5"}),
    (JdbcSource, JDBC, TABLE, {"timestamp": 5, "timestamp_nanos": -5}),
    (JdbcSource, JDBC, TABLE, {"timestamp": 5, "timestamp_nanos": 1_000_000_000}),
    (FileSource, {}, {"log": 6}, {"foo": 1}),
    (FileSource, {}, {"log": 6}, {**LEDGER, "blocks": -1}),
    (FileSource, {}, {"log": True}, LEDGER),
    (TableSource, TABLES, {"table": "others"}, {"version": 3}),
    (TableSource, TABLES, {"table": "people", "x": 1}, {"version": 3}),
    (TableSource, TABLES, {"table": "people"}, {"version": "3"}),
    (TableSource, TABLES, {"table": "people"}, {"row": 3}),
    (TableSource, TABLES, {"table": "people"}, {}),
    (TableSource, TABLES, {"table": "people"}, {"version": 3, "at": 5}),
    (SparkSource, FILES, OF_FILES, {"through": "x"}),
    (SparkSource, FILES, OF_FILES, {"through": 5, "names": "no list"}),
    (SparkSource, FILES, OF_VERSIONS, {"through": 5}),
    (SparkSource, VERSIONS, OF_VERSIONS, {"version": True}),
    (SparkSource, VERSIONS, OF_VERSIONS, {"version": 1.5}),
    (SparkSource, ROWS, OF_ROWS, {"column": "at", "value": 7}),
    (SparkSource, ROWS, OF_ROWS, {"value": 7}),
    (HttpSource, HTTP, {"url": "http://other/"}, {"page": 3}),
    (HttpSource, HTTP, {"url": "http://h/items"}, {"page": "3"}),
    (HttpSource, HTTP, {"url": "http://h/items"}, {"offset": 3}),
    (HttpSource, HTTP, {"url": "http://h/items"}, {"where": "3"}),
    (MirrorSource, {}, MIRRORED, {"offset": -1}),
    (MirrorSource, {}, {**MIRRORED, "partition": "0"}, {"offset": 1}),
    (MirrorHeartbeat, {}, HEARTBEAT, {"offset": 5}),
    (MirrorHeartbeat, {}, MIRRORED, {"offset": 0}),
    (MirrorCheckpoint, {}, {**CHECKPOINT, "partition": -1}, {"offset": 0}),
    (MirrorCheckpoint, {}, CHECKPOINT, {"offset": 1}),
    (DatagenSource, {}, {"task.id": "0"}, {"current.iteration": 5}),
    (DirectorySourceConnector, {}, {"filename": "/a"}, {"position": "5"}),
    (FileStreamSourceConnector, {"file": "/a"}, {"filename": "/a"}, {"position": -5}),
]

KINDS = {kind: props for kind, props, _, _ in GOOD}


@pytest.mark.parametrize(("kind", "props", "partition", "offset"), GOOD)
def test_an_offset_of_the_connector_is_taken(
    kind: type[SourceConnector], props: Mapping[str, str], partition: Mapping[str, Any], offset: Mapping[str, Any]
) -> None:
    assert kind().alter_offsets(props, {frozenset(partition.items()): offset})


@pytest.mark.parametrize(("kind", "props", "partition", "offset"), BAD)
def test_a_partition_or_an_offset_that_is_none_of_the_connector_is_refused(
    kind: type[SourceConnector], props: Mapping[str, str], partition: Mapping[str, Any], offset: Mapping[str, Any]
) -> None:
    with pytest.raises(ConnectException, match=r"\w"):
        kind().alter_offsets(props, {frozenset(partition.items()): offset})


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_of_another_connector_is_refused_and_may_be_removed(kind: type[SourceConnector]) -> None:
    alien = frozenset({("x", 1)})
    with pytest.raises(ConnectException, match=r"\w"):
        kind().alter_offsets(KINDS[kind], {alien: {"y": 1}})
    assert kind().alter_offsets(KINDS[kind], {alien: None})
