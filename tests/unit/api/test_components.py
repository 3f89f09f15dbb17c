"""Connectors, tasks and their contexts: what is required, what is optional, what the defaults do."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_type_hints

import pyarrow as pa
import pytest

from penstock import api
from penstock.api import (
    ConnectorContext,
    ConnectorTransactionBoundaries,
    FrameSinkTask,
    FrameSourceTask,
    OffsetAndMetadata,
    OffsetStorageReader,
    SinkConnector,
    SinkConnectorContext,
    SinkFrame,
    SinkRecord,
    SinkTask,
    SinkTaskContext,
    SourceConnector,
    SourceConnectorContext,
    SourceFrame,
    SourceRecord,
    SourceTask,
    SourceTaskContext,
    Task,
    TopicPartition,
    ValueForm,
)
from penstock.config import AbstractConfig, ConfigDef, ConfigType, Importance, setting
from penstock.errors import IllegalWorkerStateException


class Reader(OffsetStorageReader):
    def offset(self, partition: Mapping[str, object]) -> dict[str, object] | None:
        return {"position": 3}

    def offsets(self, partitions: Sequence[Mapping[str, object]]) -> list[dict[str, object] | None]:
        return [self.offset(partition) for partition in partitions]


class SourceContext(SourceConnectorContext):
    def request_task_reconfiguration(self) -> None:
        pass

    def raise_error(self, error: BaseException) -> None:
        pass

    def restart_tasks(self, task_ids: Iterable[int] | None = None) -> None:
        pass

    def offset_storage_reader(self) -> OffsetStorageReader:
        return Reader()


class SinkContext(SinkConnectorContext):
    def request_task_reconfiguration(self) -> None:
        pass

    def raise_error(self, error: BaseException) -> None:
        pass

    def restart_tasks(self, task_ids: Iterable[int] | None = None) -> None:
        pass


class Lines(SourceTask):
    def start(self, props: Mapping[str, str]) -> None:
        pass

    def poll(self) -> list[SourceRecord] | None:
        return None

    def stop(self) -> None:
        pass


class LinesConnector(SourceConnector):
    def start(self, props: Mapping[str, str]) -> None:
        pass

    def task_class(self) -> type[Task]:
        return Lines

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        # The narrowed type of context() is what lets this line pass the type checker (KIP-131).
        reader: OffsetStorageReader = self.context().offset_storage_reader()
        return [{"resume": str(reader.offset({}))}]

    def stop(self) -> None:
        pass

    def config(self) -> ConfigDef:
        return ConfigDef().define("file", ConfigType.STRING, importance=Importance.HIGH, doc="What to read.")


class Store(SinkTask):
    def __init__(self) -> None:
        self.flushed: list[Mapping[TopicPartition, OffsetAndMetadata]] = []

    def start(self, props: Mapping[str, str]) -> None:
        pass

    def put(self, records: Sequence[SinkRecord]) -> None:
        pass

    def flush(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.flushed.append(offsets)

    def stop(self) -> None:
        pass


class StoreConnector(SinkConnector):
    def start(self, props: Mapping[str, str]) -> None:
        pass

    def task_class(self) -> type[Task]:
        return Store

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [{}]

    def stop(self) -> None:
        pass

    def config(self) -> ConfigDef:
        return ConfigDef()


def test_a_source_connector_reads_offsets_through_its_context() -> None:
    connector = LinesConnector()
    connector.initialize(SourceContext())

    assert connector.task_configs(1) == [{"resume": "{'position': 3}"}]
    assert isinstance(connector.context(), SourceConnectorContext)


def test_the_context_methods_promise_the_narrow_types() -> None:
    assert get_type_hints(SourceConnector.context)["return"] is SourceConnectorContext
    assert get_type_hints(SinkConnector.context)["return"] is SinkConnectorContext


@pytest.mark.parametrize("connector", [LinesConnector(), StoreConnector()])
def test_there_is_no_context_before_initialize(connector: SourceConnector | SinkConnector) -> None:
    with pytest.raises(IllegalWorkerStateException, match=r"before initialize\(\)"):
        connector.context()


def test_a_connector_refuses_the_context_of_the_other_kind() -> None:
    source, sink = LinesConnector(), StoreConnector()
    source.initialize(SinkContext())
    sink.initialize(SourceContext())

    with pytest.raises(IllegalWorkerStateException, match="was initialized with SinkContext"):
        source.context()
    with pytest.raises(IllegalWorkerStateException, match="was initialized with SourceContext"):
        sink.context()


def test_both_contexts_are_connector_contexts() -> None:
    assert isinstance(SourceContext(), ConnectorContext)
    assert isinstance(SinkContext(), ConnectorContext)
    assert not isinstance(SinkContext(), SourceConnectorContext)


def test_validation_reports_against_the_definition() -> None:
    result = LinesConnector().validate({})

    assert [value.name for value in result.config_values] == ["file"]
    assert list(result.errors()) == ["file"]


class BoundsConfig(AbstractConfig):
    lower: int = setting(default=0)
    upper: int = setting(default=9)
    kind: type | None = setting(default=None)

    def faults(self, properties: Mapping[str, object]) -> Iterable[tuple[str, str]]:
        if self.upper < self.lower:
            yield "upper", "is less than lower"
            yield "lower.or.upper", "is not there"


class BoundsConnector(api.SourceConnector):
    config_class, task_class = BoundsConfig, api.FrameSourceTask

    def faults(self, settings: BoundsConfig) -> Iterable[tuple[str, str]]:
        return [("lower", f"of {settings.kind} is away")]


def test_validation_reports_all_conflicts_and_looks_at_the_system_only_if_there_are_none() -> None:
    conflicts = {"upper": ["upper: is less than lower"], "lower.or.upper": ["lower.or.upper: is not there"]}
    assert BoundsConnector().validate({"lower": "10"}).errors() == conflicts
    assert list(BoundsConnector().validate({"lower": "x"}).errors()) == ["lower"]
    given = {"kind": "penstock.config.AbstractConfig"}
    assert BoundsConnector().validate(given).errors() == {"lower": [f"lower: of {AbstractConfig} is away"]}


def test_a_field_of_type_class_is_imported_when_the_connector_starts() -> None:
    connector = BoundsConnector()
    connector.start({"kind": "penstock.config.AbstractConfig"})
    assert connector.settings.kind is AbstractConfig


def test_offset_and_transaction_hooks_state_nothing_by_default() -> None:
    assert LinesConnector().alter_offsets({}, {}) is False
    assert StoreConnector().alter_offsets({}, {}) is False
    assert LinesConnector().exactly_once_support({}) is None
    assert LinesConnector().can_define_transaction_boundaries({}) is ConnectorTransactionBoundaries.UNSUPPORTED
    assert LinesConnector().version() == "undefined"


REQUIRED = {
    api.SourceConnector: {"task_class"},
    api.SinkConnector: {"task_class"},
    api.SourceTask: {"poll"},
    api.FrameSourceTask: {"poll"},
    api.PartitionedTask: {"read"},
    api.SinkTask: {"put"},
    api.FrameSinkTask: {"put"},
    api.Transformation: {"apply", "config"},
    api.FrameTransformation: {"apply", "config"},
    api.Predicate: {"test", "config"},
    api.Converter: {"from_connect_data", "to_connect_data"},
    api.HeaderConverter: {"from_connect_header", "to_connect_header"},
}


@pytest.mark.parametrize(("cls", "required"), REQUIRED.items(), ids=lambda item: getattr(item, "__name__", ""))
def test_only_what_cannot_have_a_default_is_required(cls: Any, required: set[str]) -> None:
    assert cls.__abstractmethods__ == required
    with pytest.raises(TypeError, match="abstract"):
        cls()


def test_the_optional_hooks_of_a_source_task_do_nothing() -> None:
    task = Lines()
    record = SourceRecord(None, None, "t", "v")

    task.commit()
    task.commit_record(record)
    task.record_acknowledged(record, api.RecordMetadata("t", 0, 1))
    task.wakeup()
    assert task.poll() is None


def test_the_default_pre_commit_flushes_and_returns_the_offsets() -> None:
    task = Store()
    offsets = {TopicPartition("t", 0): OffsetAndMetadata(5)}

    assert task.pre_commit(offsets) == offsets
    assert task.flushed == [offsets]


def test_the_optional_hooks_of_a_sink_task_do_nothing() -> None:
    task = Store()

    task.open([TopicPartition("t", 0)])
    task.close([TopicPartition("t", 0)])
    assert task.flushed == []


class Buffering(Store):
    """What the documentation of ``pre_commit`` asks of a buffering sink."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer: list[SinkRecord] = []

    def put(self, records: Sequence[SinkRecord]) -> None:
        self.buffer.extend(records)

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        if not self.context.is_closing and len(self.buffer) < 100:
            return {}
        self.flush(offsets)
        self.buffer.clear()
        return offsets


class ClosingContext:
    def __init__(self, closing: bool) -> None:
        self.is_closing = closing


@pytest.mark.parametrize("closing", [True, False])
def test_a_buffering_sink_gives_up_its_buffer_when_it_is_closing(closing: bool) -> None:
    task = Buffering()
    context: Any = ClosingContext(closing)
    task.initialize(context)
    task.put([SinkRecord("t", 0, 4, "v")])
    offsets = {TopicPartition("t", 0): OffsetAndMetadata(5)}

    assert task.pre_commit(offsets) == (offsets if closing else {})
    assert bool(task.buffer) is not closing


def test_a_task_gets_its_context_at_initialize() -> None:
    class Context(SourceTaskContext):
        def __init__(self) -> None:
            self.stopping = threading.Event()

        def configs(self) -> dict[str, str]:
            return {}

        def offset_storage_reader(self) -> OffsetStorageReader:
            return Reader()

    task = Lines()
    task.initialize(Context())

    assert not task.context.stopping.is_set()
    assert task.context.transaction_context() is None


def test_is_closing_is_a_property_of_the_sink_context() -> None:
    assert isinstance(inspect.getattr_static(SinkTaskContext, "is_closing"), property)


@pytest.mark.parametrize("closing", [True, False])
def test_is_closing_may_be_read_and_called(closing: bool) -> None:
    read = api.Closing(closing)
    assert bool(read) is closing
    assert read() is closing
    assert read == int(closing)
    assert (str(read), repr(read)) == (str(closing), str(closing))


def test_frame_tasks_are_tasks_of_their_kind() -> None:
    assert issubclass(FrameSourceTask, SourceTask)
    assert issubclass(FrameSinkTask, api.AnySinkTask)
    assert not issubclass(FrameSinkTask, SinkTask)
    assert FrameSinkTask.value_form is ValueForm.COLUMNS


def test_a_source_frame_counts_arrow_rows_only() -> None:
    class Lazy:
        def __getattr__(self, name: str) -> Any:
            raise ConnectionRefusedError("a DataFrame asks Spark for a column of that name")

    lazy: Any = Lazy()

    assert SourceFrame(pa.table({"value": ["a", "b"]}), "t", None, {}, {}).num_rows == 2
    assert SourceFrame(lazy, "t", None, {}, {}).num_rows is None
    assert SourceFrame(lambda session: session.range(3), "t", None, {}, {}).num_rows is None


def test_a_context_without_a_session_says_so() -> None:
    class Context(SourceTaskContext):
        def configs(self) -> dict[str, str]:
            return {}

        def offset_storage_reader(self) -> OffsetStorageReader:
            raise NotImplementedError

    with pytest.raises(IllegalWorkerStateException, match="no Spark session"):
        Context().spark()


def test_a_sink_frame_needs_a_session_for_its_dataframe() -> None:
    table = pa.table({"value": ["a"]})

    class Session:
        def createDataFrame(self, data: Any) -> Any:
            return ("dataframe of", data)

    session: Any = Session()
    frame = SinkFrame(table, None, None, spark=lambda: session)
    made: Any = frame.dataframe()

    assert frame.num_rows == 1
    assert made == ("dataframe of", table)
    with pytest.raises(IllegalWorkerStateException, match="no Spark session"):
        SinkFrame(table, None, None).dataframe()


def _public() -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name in api.__all__:
        item = getattr(api, name)
        if not inspect.isclass(item) or not item.__module__.startswith("penstock"):
            continue
        found.append((name, item))
        for member, value in vars(item).items():
            if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                found.append((f"{name}.{member}", value))
    return found


@pytest.mark.parametrize(("name", "item"), _public(), ids=lambda item: item if isinstance(item, str) else "")
def test_everything_authors_see_is_documented(name: str, item: Any) -> None:
    assert (item.__doc__ or "").strip(), f"{name} has no docstring"


def test_authors_packages_pull_in_the_standard_library_only() -> None:
    script = (
        "import sys, penstock.api, penstock.data, penstock.config, penstock.errors\n"
        "print([m for m in ('pyspark', 'pyarrow', 'pandas', 'confluent_kafka') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert result.stdout.strip() == "[]"
