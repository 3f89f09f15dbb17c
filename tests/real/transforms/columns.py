"""Runs records through the columns of transforms, many chains in one job, and through ``apply``, and compares both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from conformance.vectors.adapter import encode_record
from conformance.vectors.codec import equal_values
from conformance.vectors.model import Failure, Outcome, Success, simple_name, transform_class

from penstock.api import ConnectRecord, SinkRecord, Transformation
from penstock.pipeline.batch.batches import Failures, Stage
from penstock.pipeline.batch.groups import RecordGroup, group_records, why_rows
from penstock.pipeline.batch.row_path import attributes_of, columns_of, rebuilt_rows
from penstock.pipeline.batch.segments import class_name
from penstock.pipeline.plan.chain import ShapeGroup, Staged
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.plan.step import ColumnTransform, SideName, Step
from penstock.pipeline.spark.session import SparkRuntime
from penstock.plugins import PluginKind, Plugins

PLUGINS = Plugins.discover()
#: So many cases share a job: the time to plan one grows faster than they do.
_AT_ONCE = 3
#: So many schemaless values that do not look alike get a plan each, at most.
_FEW = 4


@dataclass(frozen=True)
class Case:
    """Records that go through a chain together."""

    chain: tuple[Transformation, ...]
    records: Sequence[ConnectRecord]
    name: str = ""


def made(cls: str, config: Mapping[str, object]) -> Transformation:
    """A transform, by the name that vectors have for its class, with its settings."""
    transform = PLUGINS.new(PluginKind.TRANSFORMATION, transform_class(cls))
    assert isinstance(transform, Transformation)
    transform.configure(config)
    return transform


def ensure_columns_equal_records(runtime: SparkRuntime, cases: Iterable[Case]) -> int:
    """Fails where the columns of a chain give something else than ``apply``.

    Returns:
        How many records were columns. Those that a chain has no columns for are not looked at.
    """
    compared = 0
    different: list[str] = []
    every = list(cases)
    for start in range(0, len(every), _AT_ONCE):
        several = every[start : start + _AT_ONCE]
        pairs = [(case, record) for case in several for record in case.records]
        for (case, record), found in zip(pairs, _columns(runtime, pairs), strict=True):
            if found is None:
                continue
            compared += 1
            expected = applied(case.chain, record)
            if not same(expected, found):
                different.append(f"{case.name}: {record!r}: columns gave {found}, apply {expected}")
    assert not different, "\n".join(different)
    return compared


def applied(chain: Sequence[Transformation], record: ConnectRecord) -> Outcome:
    """What ``apply`` of the transforms makes of a record."""
    after: ConnectRecord | None = record
    try:
        for one in chain:
            after = None if after is None else one.apply(after)
    except Exception as error:
        return Failure.of("apply", error)
    return Success({"record": None if after is None else encode_record(after)})


def same(expected: Outcome, found: Outcome) -> bool:
    """Whether two outcomes are the same record, or the same error."""
    if isinstance(expected, Success) and isinstance(found, Success):
        return equal_values(dict(expected.data), dict(found.data))
    if isinstance(expected, Failure) and isinstance(found, Failure):
        return (expected.error, expected.message) == (found.error, found.message)
    return False


def _columns(runtime: SparkRuntime, pairs: Sequence[tuple[Case, ConnectRecord]]) -> Sequence[Outcome | None]:
    """What columns make of each record; None where it goes as a row."""
    records = [record for _, record in pairs]
    failures, groups = Failures(), list(_groups(pairs))
    outcomes: list[Outcome | None] = [None] * len(records)
    for group in groups:
        for row in range(len(records)) if group.rows is None else group.rows.tolist():
            outcomes[row] = Success({"record": None})
    shared = columns_of(attributes_of(records), None, len(records), failures)
    found = SparkJobs(runtime).run(groups, shared, len(records), apart=True)
    failures.found(found)
    for outcome in found:
        for row, record in rebuilt_rows(outcome, records):
            outcomes[row] = Success({"record": encode_record(record)})
    for row, error in failures.errors.items():
        outcomes[row] = Failure("apply", simple_name(error.exception_class), error.message)
    return outcomes


def _groups(pairs: Sequence[tuple[Case, ConnectRecord]]) -> Iterator[ShapeGroup]:
    at = 0
    for case, several in groupby(pairs, lambda pair: pair[0]):
        steps = tuple(Staged(_step(one), Stage.TRANSFORMATION, class_name(one)) for one in case.chain)
        records = [record for _, record in several]
        rows = range(at, at + len(records))
        at += len(records)
        sink = isinstance(records[0], SinkRecord)
        for group in group_records(records, rows, sink=sink, on_bad=_bad, mixed=False):
            mixed = why_rows(steps, group.shape) is not None and len(records) <= _FEW
            split = _one_by_one(group, records, rows, sink) if mixed else [group]
            for one in split:
                if why_rows(steps, one.shape) is None:
                    yield ShapeGroup(steps, one.shape, one.rows, one.columns)


def _one_by_one(group: RecordGroup, records: Sequence[ConnectRecord], rows: range, sink: bool) -> Iterator[RecordGroup]:
    """Schemaless values that do not look alike: each looks like itself."""
    for row in rows if group.rows is None else group.rows.tolist():
        yield from group_records([records[row - rows.start]], [row], sink=sink, on_bad=_bad, mixed=False)


def _step(transform: Transformation) -> Step:
    assert isinstance(transform, ColumnTransform)
    return transform.step()


def _bad(seq: int, side: SideName, error: Exception) -> None:
    """A value that no column holds goes as a row."""
