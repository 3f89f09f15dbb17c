"""Offsets that live in the database a sink writes to."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from penstock.api import OffsetsInTarget, SinkFrame, TopicPartition
from penstock.errors import ConnectException, OwnershipLostException, RetriableException

A, B, C = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Target:
    """A database, and statements in its transaction."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:")
        self.statements: list[str] = []
        self.connection.execute(OffsetsInTarget("c").create_statement)

    def run(self, statement: str, parameters: Sequence[object]) -> Sequence[Sequence[Any]]:
        self.statements.append(statement)
        return self.connection.execute(statement, tuple(parameters)).fetchall()


@pytest.fixture
def target() -> Iterator[Target]:
    made = Target()
    yield made
    made.connection.close()


def frame(place: TopicPartition, offsets: Sequence[int]) -> SinkFrame:
    count = len(offsets)
    origin = {"topic": [place.topic] * count, "partition": [place.partition] * count, "offset": offsets}
    return SinkFrame(pa.table({**origin, "value": list(offsets)}), None, None)


def test_offsets_are_those_that_the_task_before_has_moved(target: Target) -> None:
    first = OffsetsInTarget("c")
    assert first.claim(target.run, [A, B, C]) == {}
    for reached in ({A: 5, C: 7}, {A: 6}):
        first.move(target.run, reached)
        first.moved(reached)
    assert OffsetsInTarget("c").claim(target.run, [A, B, C]) == {A: 6, C: 7}
    assert OffsetsInTarget("other").claim(target.run, [A, B, C]) == {}


def test_rows_that_are_written_are_left_out(target: Target) -> None:
    offsets = OffsetsInTarget("c")
    offsets.claim(target.run, [A, B])
    assert offsets.new(frame(A, range(3))).num_rows == 3
    offsets.move(target.run, {A: 2})
    offsets.moved({A: 2})
    assert offsets.new(frame(A, range(4))).table["value"].to_pylist() == [2, 3]
    assert offsets.new(frame(B, range(4))).num_rows == 4
    assert offsets.new(frame(A, [])).num_rows == 0
    assert offsets.pending({A: 2, B: 1}) == {B: 1}


def test_a_topic_that_was_made_again_is_an_error(target: Target) -> None:
    offsets = OffsetsInTarget("c")
    offsets.alter(target.run, {A: 10})
    assert offsets.claim(target.run, [A]) == {A: 10}
    with pytest.raises(ConnectException, match=r"topic a, partition 0, was read from the offset 3.*made again"):
        offsets.new(frame(A, [3, 4]))


@pytest.mark.parametrize("moves", [False, True])
def test_a_task_that_was_replaced_is_refused(target: Target, moves: bool) -> None:
    stale, owner = OffsetsInTarget("c"), OffsetsInTarget("c")
    stale.claim(target.run, [A])
    owner.claim(target.run, [A])
    if moves:
        owner.move(target.run, {A: 3})
    with pytest.raises(OwnershipLostException, match="belongs to another task"):
        stale.move(target.run, {A: 5})
    assert target.connection.execute("SELECT next_offset FROM penstock_offsets").fetchall() == [(3 if moves else -1,)]


def test_partitions_that_were_given_up_or_whose_row_is_gone_are_refused(target: Target) -> None:
    offsets = OffsetsInTarget("c")
    offsets.claim(target.run, [A, B])
    offsets.forget([A])
    with pytest.raises(OwnershipLostException):
        offsets.move(target.run, {A: 5})
    target.run("DELETE FROM penstock_offsets", ())
    with pytest.raises(OwnershipLostException, match="its row was deleted"):
        offsets.move(target.run, {B: 5})


def test_a_commit_that_was_not_seen_is_found(target: Target) -> None:
    offsets = OffsetsInTarget("c")
    offsets.claim(target.run, [A])
    offsets.move(target.run, {A: 5})
    with pytest.raises(RetriableException, match="up to the offset 5"):
        offsets.move(target.run, {A: 5})
    assert offsets.new(frame(A, range(7))).table["value"].to_pylist() == [5, 6]
    offsets.move(target.run, {A: 7})


def test_offsets_are_set_and_reset(target: Target) -> None:
    offsets = OffsetsInTarget("c")
    offsets.claim(target.run, [A, B])
    offsets.alter(target.run, {A: 4, B: None, C: 9})
    assert OffsetsInTarget("c").claim(target.run, [A, B, C]) == {A: 4, C: 9}


@pytest.mark.parametrize(("placeholder", "said"), [("?", "(?, ?, ?, ?, ?)"), ("%s", "(%s, %s, %s, %s, %s)")])
def test_parameters_stand_where_the_driver_wants_them(placeholder: str, said: str) -> None:
    statements: list[str] = []

    def run(statement: str, parameters: Sequence[object]) -> Sequence[Sequence[Any]]:
        statements.append(statement)
        return [(1,)]

    OffsetsInTarget("c", placeholder=placeholder).claim(run, [A])
    OffsetsInTarget("c", placeholder="$", table="kept.offsets").claim(run, [A])
    assert said in statements[0]
    assert "INTO kept.offsets" in statements[1]
    assert "($1, $2, $3, $4, $5)" in statements[1]


def test_mysql_is_asked_for_the_offset_and_keeps_it_until_the_transaction_ends() -> None:
    statements: list[str] = []
    rows: list[tuple[Any, ...]] = [(5, "me")]

    def run(statement: str, parameters: Sequence[object]) -> Sequence[Sequence[Any]]:
        statements.append(statement.partition(" ")[0] + statement[-12:])
        return rows if statement.startswith("SELECT") else []

    offsets = OffsetsInTarget("c", placeholder="%s", mysql=True)
    rows[0] = (5, offsets.owner)
    assert offsets.claim(run, [A]) == {A: 5}
    offsets.move(run, {A: 7})
    assert statements == ["INSERTALUES(owner)", "SELECTs FOR UPDATE", "SELECTs FOR UPDATE", "UPDATED owner = %s"]
    rows[0] = (7, offsets.owner)  # The transaction before was committed after all.
    with pytest.raises(RetriableException):
        offsets.move(run, {A: 7})
    rows[0] = (7, "another one")
    with pytest.raises(OwnershipLostException):
        offsets.move(run, {A: 9})
    assert "utf8mb4_bin" in offsets.create_statement
