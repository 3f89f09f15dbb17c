"""Where stateless transforms run, and what happens when they cannot be sent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from penstock.api import ConnectRecord, SourceRecord, Transformation
from penstock.config import ConfigDef
from penstock.errors import ConnectException, DataException, SparkUnavailableException
from penstock.pipeline.batch import groups as roads
from penstock.pipeline.batch.batches import Failures, Why
from penstock.pipeline.batch.segments import Classic, Stateless
from penstock.pipeline.batch.stateless import Spreader, StatelessWork
from penstock.pipeline.batch.transfer import part_of_records
from penstock.pipeline.spark.prepared_plan import Mapped


class Half(Transformation):
    """Halves even numbers; drops 7 and refuses 9."""

    stateless = True

    def config(self) -> ConfigDef:
        return ConfigDef()

    def configure(self, props: Mapping[str, object]) -> None:
        self.lock = threading.Lock() if props.get("lock") else None

    def apply(self, record: Any) -> Any:
        if record.value == 9:
            raise DataException("no nines")
        return None if record.value == 7 else record.new_record(value=record.value // 2)


class Strange(Half):
    """Returns what no process can send."""

    def apply(self, record: Any) -> Any:
        return record.new_record(value=threading.Lock())


class Workers:
    """Python workers in this process, on two cores."""

    parallelism = 2

    def __init__(self, fail: Callable[[int], Exception | None] = lambda call: None) -> None:
        self._fail = fail
        self.calls: list[int] = []

    def in_python_workers(self, mapped: Mapped, digest: str, rows: Sequence[bytes]) -> list[bytes]:
        self.calls.append(len(rows))
        if (error := self._fail(len(self.calls))) is not None:
            raise error
        assert isinstance(mapped, StatelessWork)
        return [mapped.answer(row) for row in rows]


def spreader_of(workers: Workers, spent: Callable[[str, float], None]) -> Spreader:
    double: Any = workers
    return Spreader(double, spent)


def segment(kind: type[Half] = Half, props: Mapping[str, object] | None = None) -> Stateless:
    made = kind()
    made.configure(props or {})
    return Stateless((Classic(made, None, False, "my.Half", "half", props),))


def records(*values: int) -> list[ConnectRecord]:
    return [SourceRecord(None, None, "t", value) for value in values]


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roads, "MIN_SPREAD_ROWS", 4)


def test_many_records_go_to_python_workers_and_come_back_with_their_rows() -> None:
    workers, spent, failures = Workers(), list[str](), Failures()
    spreader, chain = spreader_of(workers, lambda alias, seconds: spent.append(alias)), segment()
    assert not spreader.takes(chain, 3)
    assert not workers.calls, "nobody was asked for so few"
    assert spreader.takes(chain, 5)

    live = records(2, 7, 4, 9, 6)
    laid, left = spreader.run(chain, [part_of_records(live, range(10, 15))], failures, columns=False)

    assert (laid, [one.value for one in left[0]], left[1]) == ([], [1, 2, 3], [10, 12, 14])
    (error,) = failures.errors.values()
    assert (error.seq, error.stage, error.executing_class) == (13, "TRANSFORMATION", "my.Half")
    assert (error.exception_class, error.message) == ("org.apache.kafka.connect.errors.DataException", "no nines")
    assert failures.paths(15)[Why.STATELESS] == 5
    assert (workers.calls, spent) == ([2, 2], ["half"])


def test_records_of_several_parts_come_back_in_the_order_of_their_rows() -> None:
    spreader, chain = spreader_of(Workers(), lambda alias, seconds: None), segment()
    assert spreader.takes(chain, 5)
    parts = [part_of_records(records(2, 6, 10), [0, 2, 4]), part_of_records(records(4, 8), [1, 3])]

    _, left = spreader.run(chain, parts, Failures(), columns=False)

    assert ([one.value for one in left[0]], left[1]) == ([1, 2, 3, 4, 5], [0, 1, 2, 3, 4])


def test_records_that_can_be_columns_come_back_so_if_they_are_wanted_so() -> None:
    spreader, chain = spreader_of(Workers(), lambda alias, seconds: None), segment()
    assert spreader.takes(chain, 4)

    laid, left = spreader.run(chain, [part_of_records(records(2, 4, 6, 8), range(4))], Failures(), columns=True)

    assert left == ([], [])
    assert [row for part in laid for row in part.rows.tolist()] == [0, 1, 2, 3]
    assert [one.value for part in laid for one in part.records()] == [1, 2, 3, 4]


def test_python_workers_that_do_not_start_are_not_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    workers, chain = Workers(lambda call: OSError("no python3")), segment()
    spreader = spreader_of(workers, lambda alias, seconds: None)

    assert [spreader.takes(chain, 5) for _ in range(2)] == [False, False]

    assert workers.calls == [2], "once"
    (warning,) = (one.getMessage() for one in caplog.records)
    assert warning.endswith("Spark's Python workers do not start, or lack a package: OSError: no python3")


def test_an_instance_that_cannot_be_pickled_is_made_of_its_settings(caplog: pytest.LogCaptureFixture) -> None:
    spreader = spreader_of(Workers(), lambda alias, seconds: None)
    unknown = segment(props={"lock": "yes"})
    unknown = Stateless(tuple(Classic(one.transformation, None, False, one.name, one.alias) for one in unknown.chain))

    assert spreader.takes(segment(props={"lock": "yes"}), 5)
    assert not spreader.takes(unknown, 5)
    (warning,) = (one.getMessage() for one in caplog.records)
    assert warning == (
        "transforms.half: stateless, but run in the worker: it cannot be sent: TypeError: cannot pickle "
        "'_thread.lock' object"
    )


def test_what_cannot_be_sent_back_is_done_here() -> None:
    spent: list[str] = []
    spreader = spreader_of(Workers(), lambda alias, seconds: spent.append(alias))
    chain, failures = segment(Strange), Failures()
    assert spreader.takes(chain, 4)

    laid, left = spreader.run(chain, [part_of_records(records(1, 2, 3, 4), range(4))], failures, columns=False)

    assert (laid, left[1]) == ([], [0, 1, 2, 3])
    assert all(type(one.value).__name__ == "lock" for one in left[0])
    assert not spreader.takes(chain, 4)
    assert failures.paths(4) == {Why.OWN_CLASS: 4}
    assert spent == ["half"]


def test_a_python_worker_that_ends_at_work_is_an_error_and_a_session_that_is_gone_another() -> None:
    def fail(call: int) -> Exception | None:
        return {2: RuntimeError("it has crashed"), 3: SparkUnavailableException("gone")}.get(call)

    spreader, chain = spreader_of(Workers(fail), lambda alias, seconds: None), segment()
    parts = [part_of_records(records(1, 2, 3, 4), range(4))]
    assert spreader.takes(chain, 4)

    with pytest.raises(ConnectException, match=r"transforms\.half: a Python worker of Spark has ended.*it has crashed"):
        spreader.run(chain, parts, Failures(), columns=False)
    with pytest.raises(SparkUnavailableException, match="gone"):
        spreader.run(chain, parts, Failures(), columns=False)
    assert spreader.takes(chain, 4), "it can be sent"
