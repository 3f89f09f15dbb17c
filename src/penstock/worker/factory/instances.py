"""The instances that a task is made of: the user's task, converters and transforms, made and configured.

Main types: ``TaskParts``; ``make_parts``, ``make_converters`` and ``new_task``. Called on the thread that builds
the task.

Source: org.apache.kafka.connect.runtime.Worker.TaskBuilder, isolation.Plugins.newConverter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeVar

from penstock.api import BaseTransformation, Converter, HeaderConverter, Monitorable, Predicate, Task
from penstock.errors import ConnectException, as_exception
from penstock.pipeline.batch.batches import InstanceRecipe, TransformStage
from penstock.plugins import PluginKind, Plugins
from penstock.plugins.kinds import SignatureError, check_methods
from penstock.settings import ConnectorSettings, InvalidSettingsError, PluginSpec, SettingFault
from penstock.settings.worker import ConverterSettings, WorkerSettings
from penstock.worker.bulk.shipping import Parts, TransformRecipe
from penstock.worker.isolation.process import TaskProcess, isolated
from penstock.worker.task.configs import TASK_CLASS, load_class
from penstock.worker.task.plugin_metrics import InstanceMetrics
from penstock.worker.task.slot import TaskRequest

T = TypeVar("T")
TaskT = TypeVar("TaskT", bound=Task)


@dataclass(frozen=True)
class TaskParts:
    """The configured converters and transforms of one task."""

    key_converter: Converter
    value_converter: Converter
    header_converter: HeaderConverter
    transforms: tuple[TransformStage, ...] = ()


def new_task(
    request: TaskRequest, base: type[TaskT], settings: ConnectorSettings | None = None, made: ExitStack | None = None
) -> tuple[TaskT, TaskProcess | None]:
    """An instance of the task's class; where ``task.isolation=process`` says so, one that stands for it in the worker.

    Returns:
        The task, and the process in which it will be; ``made`` closes that.

    Raises:
        ConnectException: the class is not there, cannot be made, does not extend ``base``, or has a method that cannot
            be called.
    """
    path = request.task_config.get(TASK_CLASS)
    if not path:
        raise ConnectException(f"task {request.id} has no {TASK_CLASS}")
    cls = load_class(path)
    try:
        check_methods(cls)
    except SignatureError as error:
        raise ConnectException(f"task {request.id} cannot be used: {error}") from error
    if settings is None or made is None or settings.isolation.mode != "process":
        return _made(f"task {request.id}", cls, base), None
    if not issubclass(cls, base):
        raise ConnectException(f"task {request.id}: {path} does not extend {base.__name__}")
    process = TaskProcess(request.id, path, settings.isolation.memory_max_bytes)
    made.callback(process.close)
    task: TaskT = isolated(cls, process)
    return task, process


def make_parts(
    worker: WorkerSettings,
    settings: ConnectorSettings,
    plugins: Plugins,
    made: ExitStack,
    metrics: InstanceMetrics | None = None,
) -> TaskParts:
    """Makes and configures converters and transforms; ``made`` closes them.

    A converter that the connector names gets the connector's sub-settings; otherwise the worker's converter gets the
    worker's sub-settings only. `metrics` are the task's metrics; None: they are not shown.

    Raises:
        ConnectException: a class cannot be found, made or configured.
    """
    metrics = metrics or InstanceMetrics.unread()
    converters = make_converters(worker, settings, plugins, made, metrics)
    return TaskParts(*converters, tuple(_transforms(settings, made, metrics)))


def make_converters(
    worker: WorkerSettings,
    settings: ConnectorSettings,
    plugins: Plugins,
    made: ExitStack,
    metrics: InstanceMetrics | None = None,
) -> tuple[Converter, Converter, HeaderConverter]:
    """Makes and configures the converters of a task: of keys, values and headers; ``made`` closes them.

    `metrics` are the task's metrics; None: they are not shown, as for a task's second set of converters.

    Raises:
        ConnectException: a class cannot be found, made or configured.
    """
    metrics = metrics or InstanceMetrics.unread()
    key = _chosen("key.converter", PluginKind.CONVERTER, settings.key_converter, worker.key_converter, plugins)
    value = _chosen("value.converter", PluginKind.CONVERTER, settings.value_converter, worker.value_converter, plugins)
    header = _chosen(
        "header.converter", PluginKind.HEADER_CONVERTER, settings.header_converter, worker.header_converter, plugins
    )
    return (
        _converter("key.converter", *key, made, metrics, is_key=True),
        _converter("value.converter", *value, made, metrics, is_key=False),
        _header_converter("header.converter", *header, made, metrics),
    )


def make_recipes(worker: WorkerSettings, settings: ConnectorSettings, plugins: Plugins, connector: str) -> Parts:
    """The recipes of a task's converters and transforms, for other processes.

    Raises:
        ConnectException: a class cannot be found.
    """
    key = _chosen("key.converter", PluginKind.CONVERTER, settings.key_converter, worker.key_converter, plugins)
    value = _chosen("value.converter", PluginKind.CONVERTER, settings.value_converter, worker.value_converter, plugins)
    header = _chosen(
        "header.converter", PluginKind.HEADER_CONVERTER, settings.header_converter, worker.header_converter, plugins
    )
    chain = []
    for spec in settings.transforms:
        chosen = None if spec.predicate is None else settings.predicates[spec.predicate]
        predicate = None if chosen is None else InstanceRecipe(chosen.type, dict(chosen.config))
        chain.append(TransformRecipe(spec.alias, InstanceRecipe(spec.type, dict(spec.config)), predicate, spec.negate))
    return Parts(connector, InstanceRecipe(*key), InstanceRecipe(*value), InstanceRecipe(*header), tuple(chain))


def check_worker_converters(worker: WorkerSettings, plugins: Plugins) -> None:
    """Makes and configures the worker's own converters once, so that a wrong one ends the start and not every task.

    Raises:
        InvalidSettingsError: some cannot be found, made or configured; all of them are listed.
    """
    faults = []
    metrics = InstanceMetrics.unread()
    for name, kind, given in (
        ("key.converter", PluginKind.CONVERTER, worker.key_converter),
        ("value.converter", PluginKind.CONVERTER, worker.value_converter),
        ("header.converter", PluginKind.HEADER_CONVERTER, worker.header_converter),
    ):
        with ExitStack() as made:
            try:
                cls, config = _chosen(name, kind, None, given, plugins)
                if kind is PluginKind.HEADER_CONVERTER:
                    _header_converter(name, cls, config, made, metrics)
                else:
                    _converter(name, cls, config, made, metrics, is_key=name == "key.converter")
            except ConnectException as error:
                rule = f"Invalid value {given.class_text} for configuration {name}: {error}"
                faults.append(SettingFault(name, given.class_text, rule))
    if faults:
        raise InvalidSettingsError("Worker configuration", faults)


def _chosen(
    name: str, kind: PluginKind, own: PluginSpec | None, default: ConverterSettings, plugins: Plugins
) -> tuple[type, dict[str, object]]:
    """The class and the settings of a converter."""
    config: Mapping[str, str]
    if own is not None:
        cls, config = own.type, own.config
    else:
        cls, config = plugins.resolve(kind, default.class_text), default.config
    return cls, {**config, "converter.type": name.partition(".")[0]}


def _converter(
    name: str, cls: type, config: dict[str, object], made: ExitStack, metrics: InstanceMetrics, *, is_key: bool
) -> Converter:
    converter: Converter = _made(name, cls, Converter)  # type: ignore[type-abstract]
    made.callback(converter.close)
    _configure(name, lambda: converter.configure(config, is_key))
    _monitor(name, converter, metrics, converter="key" if is_key else "value")
    return converter


def _header_converter(
    name: str, cls: type, config: dict[str, object], made: ExitStack, metrics: InstanceMetrics
) -> HeaderConverter:
    converter: HeaderConverter = _made(name, cls, HeaderConverter)  # type: ignore[type-abstract]
    made.callback(converter.close)
    _configure(name, lambda: converter.configure(config))
    _monitor(name, converter, metrics, converter="header")
    return converter


def _transforms(settings: ConnectorSettings, made: ExitStack, metrics: InstanceMetrics) -> list[TransformStage]:
    stages = []
    for spec in settings.transforms:
        name = f"transforms.{spec.alias}"
        transformation: BaseTransformation = _made(name, spec.type, BaseTransformation)  # type: ignore[type-abstract]
        made.callback(transformation.close)
        _configure(name, _bound(transformation.configure, spec.config))
        _monitor(name, transformation, metrics, transformation=spec.alias)
        predicate: Predicate | None = None
        predicate_props: Mapping[str, object] | None = None
        if spec.predicate is not None:
            chosen = settings.predicates[spec.predicate]
            name = f"predicates.{chosen.alias}"
            predicate = _made(name, chosen.type, Predicate)  # type: ignore[type-abstract]
            made.callback(predicate.close)
            predicate_props = chosen.config
            _configure(name, _bound(predicate.configure, predicate_props))
            # One predicate may stand at several transforms, each time as an instance of its own.
            _monitor(name, predicate, metrics, transformation=spec.alias, predicate=chosen.alias)
        stages.append(TransformStage(spec.alias, transformation, predicate, spec.negate, spec.config, predicate_props))
    return stages


def _bound(configure: Callable[[Mapping[str, object]], None], config: Mapping[str, object]) -> Callable[[], None]:
    return lambda: configure(dict(config))


def _made(name: str, cls: type, base: type[T]) -> T:
    try:
        instance: object = cls()
    except BaseException as error:
        raise ConnectException(f"{name}: {cls.__name__} cannot be made: {type(error).__name__}: {error}") from error
    if not isinstance(instance, base):
        raise ConnectException(f"{name}: {cls.__module__}.{cls.__qualname__} does not extend {base.__name__}")
    return instance


def _configure(name: str, configure: Callable[[], None]) -> None:
    try:
        configure()
    except BaseException as error:
        raise ConnectException(f"{name} cannot be configured: {as_exception(error)}") from error


def _monitor(name: str, plugin: object, metrics: InstanceMetrics, **labels: str) -> None:
    if not isinstance(plugin, Monitorable):
        return
    try:
        plugin.with_plugin_metrics(metrics.plugin(**labels))
    except BaseException as error:
        raise ConnectException(f"{name} cannot add its metrics: {as_exception(error)}") from error
