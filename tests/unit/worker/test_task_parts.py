"""The parts of a task: converters of a worker's file are checked before any is made, and parts get their metrics."""

import re
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.api import (
    Converter,
    FrameSinkTask,
    HeaderConverter,
    Monitorable,
    PluginMetrics,
    Predicate,
    Transformation,
)
from penstock.config import ConfigDef, ConfigType
from penstock.errors import ConnectException
from penstock.model import ConnectorTaskId, ConnectorType
from penstock.plugins import Plugins
from penstock.settings import (
    ConnectorSettings,
    InstalledPlugins,
    InvalidSettingsError,
    SourceSettings,
    StandaloneSettings,
)
from penstock.stores.offset_file import replace_file
from penstock.telemetry import Metrics, no_probe
from penstock.worker import task_parts
from penstock.worker.task.plugin_metrics import InstanceMetrics
from penstock.worker.task.slot import (
    TaskRequest,
)
from penstock.worker.task_parts import TaskParts, check_worker_converters, make_bulk, make_parts, new_task, writers_name

STRING = "org.apache.kafka.connect.storage.StringConverter"
MINIMUM = {
    "bootstrap.servers": "h:1",
    "key.converter": STRING,
    "value.converter": STRING,
    "offset.storage.file.filename": "offsets",
}


def check(**changes: str) -> None:
    """Checks a worker's file; ``key_converter`` stands for ``key.converter``."""
    given = {name.replace("_", "."): text for name, text in changes.items()}
    check_worker_converters(StandaloneSettings.parse({**MINIMUM, **given}), Plugins())


def test_java_names_aliases_and_settings_that_fit_are_accepted() -> None:
    check()
    check(key_converter="Json", key_converter_schemas_enable="false", header_converter=STRING)


def test_every_converter_that_cannot_be_used_is_named_with_the_reason_and_the_closest_name() -> None:
    with pytest.raises(InvalidSettingsError) as refused:
        check(
            key_converter="JsonConvertr",
            value_converter="JsonConverter",
            value_converter_schemas_cache_size="many",
            header_converter="FileStreamSource",
        )
    key, value, header = refused.value.faults
    assert (key.key, key.value) == ("key.converter", "JsonConvertr")
    assert key.rule.startswith("Invalid value JsonConvertr for configuration key.converter: Failed to find any class")
    assert "Did you mean JsonConverter?" in key.rule
    assert "value.converter cannot be configured: Invalid value many for configuration schemas.cache.size" in value.rule
    assert "which name matches FileStreamSource" in header.rule


class _Seen(Monitorable):
    """Shows how often it was configured; a setting makes it refuse its metrics."""

    configured = 0

    def configure(self, *given: object) -> None:
        self.configured += 1
        self.refuses = "refuse" in str(given)

    def config(self) -> ConfigDef:
        return ConfigDef().define("how", ConfigType.STRING, default="", doc="How to take metrics.")

    def with_plugin_metrics(self, metrics: PluginMetrics) -> None:
        if self.refuses:
            raise ValueError("not now")
        metrics.add_metric(metrics.metric_name("configured"), lambda: self.configured)


def _unused(self: object, *arguments: object) -> None: ...


class SeenConverter(_Seen, Converter):
    from_connect_data = to_connect_data = _unused  # type: ignore[assignment]


class SeenHeaderConverter(_Seen, HeaderConverter):
    from_connect_header = to_connect_header = _unused  # type: ignore[assignment]


class SeenTransform(_Seen, Transformation):
    apply = _unused  # type: ignore[assignment]


class SeenPredicate(_Seen, Predicate):
    test = _unused  # type: ignore[assignment]


CHAIN = {
    "name": "a",
    "connector.class": "FileStreamSink",
    "key.converter": f"{__name__}:SeenConverter",
    "value.converter": f"{__name__}:SeenConverter",
    "header.converter": f"{__name__}:SeenHeaderConverter",
    "transforms": "one,two",
    "transforms.one.type": f"{__name__}:SeenTransform",
    "transforms.one.predicate": "p",
    "transforms.two.type": f"{__name__}:SeenTransform",
    "transforms.two.predicate": "p",
    "predicates": "p",
    "predicates.p.type": f"{__name__}:SeenPredicate",
}


def parts(made: ExitStack, metrics: InstanceMetrics | None, config: Mapping[str, str]) -> TaskParts:
    plugins = Plugins()
    settings = ConnectorSettings.parse(config, InstalledPlugins(plugins))
    return make_parts(StandaloneSettings.parse(MINIMUM), settings, plugins, made, metrics)


def test_monitorable_parts_get_their_metrics_once_they_are_configured() -> None:
    registry = Metrics()
    metrics = InstanceMetrics(registry, {"connector": "a", "task": "0"})
    with ExitStack() as made:
        parts(made, metrics, CHAIN)
        whose = [{key: tags[key] for key in tags if key not in ("connector", "task")} for _, tags, _ in registry.read()]
        assert sorted(whose, key=str) == [
            {"converter": "header"},
            {"converter": "key"},
            {"converter": "value"},
            {"predicate": "p", "transformation": "one"},
            {"predicate": "p", "transformation": "two"},
            {"transformation": "one"},
            {"transformation": "two"},
        ]
        assert [value for _, _, value in registry.read()] == [1] * 7
    metrics.close()
    assert list(registry.read()) == []


def test_parts_of_a_preview_get_metrics_that_nobody_sees() -> None:
    with ExitStack() as made:
        parts(made, None, CHAIN)


def test_a_part_that_refuses_its_metrics_is_named() -> None:
    with ExitStack() as made, pytest.raises(ConnectException, match=r"transforms\.one cannot add its metrics: not now"):
        parts(made, None, {**CHAIN, "transforms.one.how": "refuse"})


class WrongTask(FrameSinkTask):
    def start(self, props: object) -> None: ...

    def put(self, frame, partition): ...  # type: ignore[override]

    def stop(self) -> None: ...


def test_a_task_with_a_method_that_cannot_be_called_is_not_made() -> None:
    path = {"task.class": f"{__name__}.WrongTask"}
    request = TaskRequest(ConnectorTaskId("c", 0), ConnectorType.SINK, {}, path, dict, False, 1)
    with pytest.raises(ConnectException) as refused:
        new_task(request, FrameSinkTask)  # type: ignore[type-abstract]
    assert str(refused.value) == (
        f"task c-0 cannot be used: {__name__}.WrongTask.put(self, frame, partition) "
        "cannot be called: the worker calls put(frame) (missing a required argument: 'partition')"
    )


def test_the_name_of_a_standalone_workers_bulk_work_stays_when_its_offsets_move_to_another_host(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()

    def name(directory: Path, host: str) -> str:
        return writers_name({"offset.storage.file.filename": str(directory / "offsets")}, host)

    first = name(here, "one")
    assert re.fullmatch("standalone-[0-9a-f]{8}", first)
    assert name(here, "two") == first
    here.rename(there)
    assert name(there, "three") == first
    (there / "offsets.bulk").write_text("")
    assert name(there, "three") == name(there, "four") != first


def test_a_name_that_cannot_be_kept_is_used_and_a_warning_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    absent = {"offset.storage.file.filename": str(tmp_path / "absent" / "offsets")}
    assert writers_name(absent, "one").startswith("standalone-")
    assert "begins anew if the worker moves to another host" in caplog.text
    (tmp_path / "offsets.bulk").write_bytes(b"\xff\xfe")
    assert writers_name({"offset.storage.file.filename": str(tmp_path / "offsets")}, "one").startswith("standalone-")


def test_tasks_that_need_the_name_at_once_write_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"offset.storage.file.filename": str(tmp_path / "offsets")}
    writes: list[Path] = []
    second = threading.Event()

    def replace(file: Path, content: bytes) -> None:
        writes.append(file)
        if len(writes) > 1:
            second.set()
        second.wait(0.1)
        replace_file(file, content)

    monkeypatch.setattr(task_parts, "replace_file", replace)
    with ThreadPoolExecutor(2) as threads:
        first, other = threads.map(lambda _: writers_name(here, "one"), range(2))
    assert (first, writes) == (other, [tmp_path / "offsets.bulk"])


def test_a_task_without_bulk_work_leaves_no_file_next_to_the_offsets(tmp_path: Path) -> None:
    worker = StandaloneSettings.parse({**MINIMUM, "offset.storage.file.filename": str(tmp_path / "offsets")})
    given = {"name": "a", "connector.class": "FileStreamSource", "topic": "t", "file": "f"}
    plugins, nothing = Plugins(), cast("Any", None)
    settings = SourceSettings.parse(given, InstalledPlugins(plugins))
    make_bulk(ConnectorTaskId("a", 0), worker, settings, plugins, *(nothing,) * 5, probe=no_probe, exactly_once=False)
    assert not list(tmp_path.iterdir())
