"""Methods that the worker cannot call are found before it calls any, whatever class they are of."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import api
from penstock.config import ConfigProvider
from penstock.plugins import PluginKind, PluginNotFoundException, Plugins
from penstock.plugins.kinds import SignatureError, check_methods

#: Everything that authors extend.
BASES = (
    api.SourceConnector,
    api.SinkConnector,
    api.SourceTask,
    api.FrameSourceTask,
    api.SinkTask,
    api.FrameSinkTask,
    api.Transformation,
    api.FrameTransformation,
    api.Predicate,
    api.Converter,
    api.HeaderConverter,
    api.RestExtension,
    api.Monitorable,
    ConfigProvider,
)


def methods(base: type) -> list[tuple[type, str, list[str]]]:
    """The public methods of a base, and the arguments that each is called with."""
    found = inspect.getmembers(base, inspect.isfunction)
    return [
        (base, name, list(inspect.signature(method).parameters)[1:])
        for name, method in found
        if not name.startswith("_")
    ]


EVERY = [entry for base in BASES for entry in methods(base)]


def extended(base: type, name: str, written: object) -> type:
    """A class of an author with one method of its own."""
    return type("Mine", (base,), {"__module__": "mine", name: written})


def function(arguments: str) -> Callable[..., object]:
    made: Callable[..., object] = eval(f"lambda {arguments}: None")
    return made


@pytest.mark.parametrize(("base", "name", "arguments"), EVERY, ids=lambda item: getattr(item, "__name__", str(item)))
def test_every_method_of_every_base_is_checked(base: type, name: str, arguments: list[str]) -> None:
    callable_forms = [
        ", ".join(["self", *arguments]),
        ", ".join(["this", *(f"{one}_renamed" for one in arguments)]),
        "self, *given",
        "*given, **named",
        ", ".join(["self", *arguments, "more=None"]),
        ", ".join(["self", *arguments, "*", "more=None"]),
        ", ".join(["self", *(f"{one}=None" for one in arguments)]),
    ]
    for form in callable_forms:
        check_methods(extended(base, name, function(form)))
    check_methods(extended(base, name, staticmethod(function(", ".join(arguments)))))
    check_methods(extended(base, name, classmethod(function(", ".join(["cls", *arguments])))))
    wanted = f"the worker calls {name}({', '.join(arguments)})"
    wrong = ["", ", ".join(["self", *arguments, "second", "third"]), ", ".join(["self", *arguments, "*", "more"])]
    if arguments and name != "commit_record":
        wrong += ["self", ", ".join(["self", *arguments[:-1]]), f"self, *, {', '.join(arguments)}"]
    for form in wrong:
        with pytest.raises(SignatureError) as refused:
            check_methods(extended(base, name, function(form)))
        assert str(refused.value).startswith(f"mine.Mine.{name}("), form
        assert wanted in str(refused.value)

    async def waiting(self: object, *given: object) -> None: ...

    for member, text in ((waiting, "must not be async"), ("1.0", "is str, not a method")):
        with pytest.raises(SignatureError, match=text):
            check_methods(extended(base, name, member))


def test_the_text_says_what_is_there_and_what_is_wanted() -> None:
    with pytest.raises(SignatureError) as refused:
        check_methods(extended(api.SourceTask, "commit_record", function("self, record, metadata, offset")))
    assert str(refused.value) == (
        "mine.Mine.commit_record(self, record, metadata, offset) cannot be called: the worker calls "
        "commit_record(record), or commit_record(record, metadata) (missing a required argument: 'metadata')"
    )


def test_a_wrapper_counts_and_not_what_it_wraps() -> None:
    def given_a_client(method: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(method)
        def wrapper(self: object) -> object:
            return method(self, "client")

        return wrapper

    check_methods(extended(api.SourceTask, "poll", given_a_client(lambda self, client: None)))
    with pytest.raises(SignatureError):
        check_methods(extended(api.SinkTask, "put", given_a_client(lambda self, records: None)))
    check_methods(extended(api.SinkTask, "put", functools.partialmethod(lambda self, mode, records: None, "w")))


def test_what_is_inherited_from_a_class_between_is_checked_too() -> None:
    between = extended(api.SinkTask, "put", function("self"))
    with pytest.raises(SignatureError, match=r"put\(self\) cannot be called: the worker calls put\(records\)"):
        check_methods(type("Last", (between,), {"__module__": "mine"}))
    check_methods(extended(between, "put", function("self, records")))


PLUGINS: dict[PluginKind, tuple[str, str]] = {
    PluginKind.SOURCE: ("SourceConnector", "def task_configs(self): ..."),
    PluginKind.SINK: ("SinkConnector", "def initialize(self, context, task_configs): ..."),
    PluginKind.CONVERTER: ("Converter", "def from_connect_data(self, topic, schema, value): ..."),
    PluginKind.HEADER_CONVERTER: ("HeaderConverter", "def configure(self, configs, is_key): ..."),
    PluginKind.TRANSFORMATION: ("Transformation", "def apply(self): ..."),
    PluginKind.PREDICATE: ("Predicate", "def test(self, record, topic): ..."),
}


@pytest.mark.parametrize("kind", PLUGINS, ids=lambda kind: kind.value)
def test_a_plugin_with_such_a_method_is_refused_when_it_is_named(
    kind: PluginKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, method = PLUGINS[kind]
    needed: Any = kind.base()
    others = "\n".join(f"    def {name}(self, *given): ..." for name in sorted(needed.__abstractmethods__))
    text = f"from penstock.api import {base}\nclass Wrong({base}):\n{others}\n    {method}\n"
    (tmp_path / f"wrong_{kind.value}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"wrong_{kind.value}.Wrong"
    with pytest.raises(PluginNotFoundException) as refused:
        Plugins().resolve(kind, name)
    assert str(refused.value).startswith(f"Class {name} cannot be used: {name}.")
    assert "cannot be called: the worker calls" in str(refused.value)
