"""The source of made-up records: pace, offsets, repeatability, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from testkit.doubles.contexts import FakeSourceContext, StoredOffsets

from penstock.api import SourceFrame
from penstock.connectors.datagen import DatagenSource, DatagenTask
from penstock.connectors.datagen import connector as module
from penstock.connectors.datagen.connector import DatagenConfig
from penstock.errors import ConfigException, ConnectException
from penstock.plugins import PluginKind, Plugins

FAST = {"kafka.topic": "t", "quickstart": "orders", "max.interval": "0", "random.seed": "7"}


class Clock:
    """The module's ``time``; waiting on ``stopping`` moves it."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


def started(props: Mapping[str, str], offset: Mapping[str, Any] | None = None) -> DatagenTask:
    task = DatagenTask()
    task.initialize(FakeSourceContext(StoredOffsets(offset)))
    task.start(props)
    return task


def polled(task: DatagenTask) -> SourceFrame:
    frame = task.poll()
    assert frame is not None
    return frame


def rows_of(frame: SourceFrame) -> pa.Table:
    assert isinstance(frame.data, pa.Table)
    return frame.data


def test_all_names_find_the_class() -> None:
    plugins = Plugins.discover()

    for name in ("DatagenSource", "Datagen", "io.confluent.kafka.connect.datagen.DatagenConnector", "DatagenConnector"):
        assert isinstance(plugins.new(PluginKind.SOURCE, name), DatagenSource)


def test_a_frame_has_the_values_their_schema_and_the_key() -> None:
    frame = polled(started({**FAST, "batch.rows": "3"}))

    assert isinstance(frame.data, pa.Table)
    assert frame.topic == "t"
    assert frame.data.column("value").chunk(0).field("orderid").to_pylist() == [0, 1, 2]
    assert frame.data.column("key").to_pylist() == [0, 1, 2]
    assert frame.value_schema is not None
    assert frame.value_schema.name == "datagen.orders"
    assert frame.source_partition == {"task.id": 0}
    assert frame.source_offset == {"current.iteration": 3, "random.seed": 7}


def test_a_task_goes_on_behind_the_committed_row_with_the_rows_it_would_have_made() -> None:
    whole = polled(started({**FAST, "batch.rows": "100"}))
    assert isinstance(whole.data, pa.Table)
    assert whole.offset_after is not None

    rest = polled(started({**FAST, "batch.rows": "60"}, whole.offset_after(39)))

    assert rows_of(rest).combine_chunks().equals(whole.data.slice(40).combine_chunks())


def test_a_seed_by_chance_is_kept_with_the_offset() -> None:
    props = {**FAST, "batch.rows": "10"}
    del props["random.seed"]
    first = polled(started(props))

    again = polled(started(props, {**first.source_offset, "current.iteration": 0}))

    assert rows_of(again).equals(rows_of(first))
    assert not rows_of(polled(started(props))).equals(rows_of(first))


def test_tasks_make_different_records() -> None:
    source = DatagenSource()
    source.start(FAST)
    configs = source.task_configs(3)

    frames = [polled(started({**one, "batch.rows": "50"})) for one in configs]

    assert [frame.source_partition for frame in frames] == [{"task.id": number} for number in range(3)]
    items = [rows_of(frame).column("value").chunk(0).field("itemid").to_pylist() for frame in frames]
    assert items[0] != items[1] != items[2]


def test_it_ends_after_its_iterations_across_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    props = {**FAST, "iterations": "5", "batch.rows": "3"}
    task = started(props)
    assert [polled(task).source_offset["current.iteration"] for _ in range(2)] == [3, 5]
    task.context.stopping.set()
    assert task.poll() is None

    rest = started(props, {"current.iteration": 4, "random.seed": 7})
    assert polled(rest).source_offset["current.iteration"] == 5


@pytest.mark.parametrize(("settings", "rate"), [({"rate": "200"}, 200), ({"max.interval": "10"}, 200)])
def test_records_come_at_the_rate(settings: dict[str, str], rate: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    task = started({**FAST, **settings})
    task.context.stopping.set()  # it does not wait

    counts = []
    for step in (0.0, 0.5, 0.001, 0.25, 30.0):
        clock.now += step
        frame = task.poll()
        counts.append(0 if frame is None else len(frame.data))  # type: ignore[arg-type]

    # What it missed in thirty seconds it makes up for by a second's worth.
    assert counts == [1, rate // 2, 0, rate // 4, rate + 1]


def test_without_a_key_field_records_of_a_schema_have_no_key(tmp_path: Path) -> None:
    schema = json.dumps({"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}]})
    file = tmp_path / "schema.avsc"
    file.write_text(schema)
    own = {"kafka.topic": "t", "max.interval": "0"}

    for props in ({"schema.string": schema}, {"schema.filename": str(file)}):
        assert rows_of(polled(started({**own, **props}))).column_names == ["value"]
        keyed = polled(started({**own, **props, "schema.keyfield": "id"}))
        assert rows_of(keyed).column_names == ["value", "key"]


@pytest.mark.parametrize(
    ("settings", "name", "text"),
    [
        ({"quickstart": "nothing"}, "quickstart", "ORDERS"),
        ({"quickstart": ""}, "quickstart", "ORDERS"),
        ({"schema.string": "{}"}, "schema.string", "quickstart and schema.string are set"),
        ({"quickstart": None}, "quickstart", "none is set"),
        ({"quickstart": None, "schema.string": "{"}, "schema.string", "the schema is no JSON"),
        ({"quickstart": None, "schema.string": '"int"'}, "schema.string", "must be an Avro record"),
        ({"quickstart": None, "schema.filename": "/no/such"}, "schema.filename", "cannot read the file '/no/such'"),
        ({"schema.keyfield": "id"}, "schema.keyfield", "there is no field 'id'; the record has ordertime, orderid"),
        ({"rate": "-1"}, "rate", "at least 0"),
        ({"max.interval": "-1"}, "max.interval", "at least 0"),
        ({"iterations": "-2"}, "iterations", "at least -1"),
    ],
)
def test_wrong_settings_are_named(settings: Mapping[str, str | None], name: str, text: str) -> None:
    props = {key: value for key, value in {**FAST, **settings}.items() if value is not None}

    errors = {one.name: one.error_messages for one in DatagenSource().validate(props).config_values}

    assert text in " ".join(errors[name])
    assert [other for other in errors if errors[other]] == [name]
    with pytest.raises(ConfigException, match=name):
        DatagenConfig.parse(props)


@pytest.mark.parametrize(
    "offset", [{"current.iteration": "5"}, {"current.iteration": -1}, {}, {"current.iteration": True}]
)
def test_other_offsets_are_refused(offset: dict[str, object]) -> None:
    with pytest.raises(ConnectException, match=r"current.iteration must be a whole number"):
        DatagenSource().alter_offsets(FAST, {frozenset({("task.id", 0)}): offset})


def test_offsets_of_other_connectors_may_be_removed_but_not_set() -> None:
    other = frozenset({("file", "x")})

    assert DatagenSource().alter_offsets(FAST, {other: None, frozenset({("task.id", 1)}): {"current.iteration": 0}})
    with pytest.raises(ConnectException, match="no source partition of this connector"):
        DatagenSource().alter_offsets(FAST, {other: {"current.iteration": 1}})
