"""The processing of the task configurations that a connector gives.

Main functions: ``complete``, ``check_count``, ``changed``, ``class_name`` and ``load_class``. Pure functions.

Source: org.apache.kafka.connect.runtime.ConnectUtils, AbstractHerder.taskConfigsChanged.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence

from penstock.errors import ConnectException
from penstock.plugins.stock import TASK_CLASSES
from penstock.validation.config_infos import provided_values

TASK_CLASS = "task.class"
_TOPICS = ("topics", "topics.regex")
#: A value this long is no other setting's by chance.
_TELLING = 8


class TooManyTasksException(ConnectException):
    """A connector gave more task configurations than ``tasks.max`` allows."""


def check_count(connector: str, count: int, maximum: int) -> None:
    """Refuses more tasks than allowed; for ``tasks.max.enforce=true``.

    Raises:
        TooManyTasksException: too many.
    """
    if count > maximum:
        raise TooManyTasksException(
            f"The connector {connector} has generated {count} task configs, which is greater than {maximum}, "
            "the maximum number of tasks it is configured to create (tasks.max). This is likely a bug in the "
            "connector; raise tasks.max, or set tasks.max.enforce=false to run them all"
        )


def complete(
    generated: Sequence[Mapping[str, str]],
    *,
    task_class: type,
    sink: bool,
    raw: Mapping[str, str],
    resolved: Mapping[str, str],
) -> list[dict[str, str]]:
    """Adds the worker's settings to task configurations, and restores placeholders so that secrets are not stored.

    Args:
        generated: The connector's task configurations.
        task_class: Class of its tasks.
        sink: True for a sink, whose tasks get its topics.
        raw: The connector's settings with placeholders.
        resolved: The same with the placeholders resolved.
    """
    completed = []
    for config in generated:
        task = dict(config)
        task[TASK_CLASS] = class_name(task_class)
        if sink:
            task.update({key: resolved[key] for key in _TOPICS if key in resolved})
        completed.append(_with_placeholders(task, raw, resolved))
    return completed


def _with_placeholders(task: Mapping[str, str], raw: Mapping[str, str], resolved: Mapping[str, str]) -> dict[str, str]:
    given = provided_values(raw, resolved)
    restored = dict(task)
    for key, value in task.items():
        # Only where the task has the very value that the placeholder stands for: a connector may have given its
        # task another value under the same key.
        if key in raw and value == resolved.get(key) != raw[key]:
            restored[key] = raw[key]
            continue
        # Under another key, or in a longer text; a short value may be there by chance.
        for provided, text in given.items() if value else ():
            if len(provided) >= _TELLING and provided in restored[key]:
                restored[key] = restored[key].replace(provided, text)
    return restored


def changed(
    new: Sequence[Mapping[str, str]],
    old: Sequence[Mapping[str, str]],
    *,
    connector_now: Mapping[str, str],
    connector_then: Mapping[str, str] | None,
) -> bool:
    """True if the tasks must be restarted.

    Args:
        new: Task configurations just completed.
        old: Those in force.
        connector_now: The connector's settings.
        connector_then: Its settings when ``old`` came into force: converters, transforms and client overrides are read
            from there by the tasks, so a change of them needs new tasks too. None when there were none.
    """
    if [dict(config) for config in new] != [dict(config) for config in old]:
        return True
    return bool(new) and (connector_then is None or dict(connector_now) != dict(connector_then))


def class_name(cls: type) -> str:
    """Returns the name of a class in a task configuration: its Java name, if ``load_class`` finds it by that name.

    Else ``module.Class``, or ``module:Outer.Inner`` for a nested one.
    """
    java_name = vars(cls).get("java_name")
    if java_name in TASK_CLASSES:
        return str(java_name)
    separator = ":" if "." in cls.__qualname__ else "."
    return f"{cls.__module__}{separator}{cls.__qualname__}"


def load_class(name: str) -> type:
    """The class with this name; Java's names are known, too.

    Raises:
        ConnectException: it cannot be imported.
    """
    path = TASK_CLASSES.get(name, name)
    module, _, inside = path.partition(":") if ":" in path else path.rpartition(".")
    try:
        found: object = importlib.import_module(module)
        for part in inside.split("."):
            found = getattr(found, part)
    except BaseException as error:
        raise ConnectException(f"the task class {name} cannot be imported: {type(error).__name__}: {error}") from error
    if not isinstance(found, type):
        raise ConnectException(f"the task class {name} is not a class")
    return found
