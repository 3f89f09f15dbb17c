"""Lakes in a directory, and what is in their tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

FORMATS = ("delta", "iceberg")


def kills(few: int, first: int = 0) -> range:
    """Steps at which a task is killed: each one of these, or all of them with PENSTOCK_KILLS."""
    return range(first, 200, 1 if "PENSTOCK_KILLS" in os.environ else few)


def settings(path: Path, lake: str, **more: str) -> dict[str, str]:
    """The settings of a sink that makes its tables there."""
    found = {
        "name": "s",
        "table.format": lake,
        "url": str(path / "lake"),
        "auto.create": "true",
        "auto.evolve": "true",
        "commit.interval.ms": "100",
        "retry.backoff.ms": "1",
    }
    return {**found, **{name.replace("_", "."): value for name, value in more.items()}}


def catalog(path: Path) -> Any:
    """The catalog of a directory."""
    there = path / "lake"
    return load_catalog("iceberg", type="sql", uri=f"sqlite:///{there}/catalog.db", warehouse=f"file://{there}")


def iceberg(path: Path, name: str) -> Any:
    """An Iceberg table."""
    with catalog(path) as there:
        return there.load_table(name if "." in name else f"default.{name}")


def rows(path: Path, lake: str, name: str) -> list[dict[str, Any]]:
    """The rows of a table, empty where there is none."""
    if lake == "delta":
        uri = str(path / "lake" / name)
        if not DeltaTable.is_deltatable(uri):
            return []
        found: list[dict[str, Any]] = DeltaTable(uri).to_pyarrow_table().to_pylist()
        return found
    with catalog(path) as there:
        identifier = name if "." in name else f"default.{name}"
        if not there.table_exists(identifier):
            return []
        scanned: list[dict[str, Any]] = there.load_table(identifier).scan().to_arrow().to_pylist()
        return scanned


def make(path: Path, lake: str, name: str, versions: Sequence[Sequence[int]]) -> None:
    """Makes a table with a commit for each list of ids, or adds to one."""
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    for ids in versions:
        rows = pa.table([pa.array(ids), pa.array([f"n{number}" for number in ids])], schema=schema)
        if lake == "delta":
            write_deltalake(str(path / "lake" / name), rows, mode="append")
            continue
        (path / "lake").mkdir(exist_ok=True)
        with catalog(path) as there:
            there.create_namespace_if_not_exists("default")
            there.create_table_if_not_exists(f"default.{name}", schema=schema).append(rows)
