"""The names that authors import: each is documented, and none changes by accident."""

from __future__ import annotations

import builtins
import importlib
import inspect
import re
from pathlib import Path

import pytest
from tools.reference.names import PUBLIC, members, signatures

from penstock import errors

COMMITTED = Path(__file__).parents[2] / "data/api/signatures.txt"
NAMES = [
    (module, name, getattr(importlib.import_module(module), name))
    for module in PUBLIC
    for name in importlib.import_module(module).__all__
]
CLASSES = [pytest.param(value, id=f"{module}.{name}") for module, name, value in NAMES if inspect.isclass(value)]


def test_names_and_signatures_are_those_that_were_promised() -> None:
    committed = COMMITTED.read_text(encoding="utf-8")

    assert signatures() == committed, (
        "a public name has changed; if that is meant, run: "
        "python -m tools.reference.names tests/data/api/signatures.txt"
    )


@pytest.mark.parametrize("module", PUBLIC)
def test_all_lists_each_name_once_and_every_name_is_there(module: str) -> None:
    found = importlib.import_module(module)

    assert len(set(found.__all__)) == len(found.__all__)
    assert [name for name in found.__all__ if not hasattr(found, name)] == []


@pytest.mark.parametrize("module", PUBLIC)
def test_all_leaves_nothing_public_out(module: str) -> None:
    found = importlib.import_module(module)
    own = {
        name
        for name, value in vars(found).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__.startswith(module)
    }

    assert own <= set(found.__all__)


def test_every_class_and_function_has_a_docstring_of_its_own() -> None:
    documented = [value for _, _, value in NAMES if inspect.isclass(value) or inspect.isfunction(value)]

    # Not `inspect.getdoc`, which takes a base class's text.
    assert [value for value in documented if not (value.__doc__ or "").strip()] == []
    assert [value for value in documented if inspect.isclass(value) and "__doc__" not in vars(value)] == []


@pytest.mark.parametrize("cls", CLASSES)
def test_every_class_says_where_its_behaviour_is_fixed(cls: type) -> None:
    # Errors carry Kafka's name as an attribute instead.
    said = "Source: " in (cls.__doc__ or "") or issubclass(cls, Exception)

    assert said, 'add "Source: <KIP or Java class>." to the docstring, or "Source: Penstock\'s own."'


@pytest.mark.parametrize("cls", CLASSES)
def test_every_public_method_has_a_docstring(cls: type) -> None:
    without = [
        name
        for name, member in members(cls)
        if name != "__init__" and not (getattr(member, "__doc__", None) or "").strip()
    ]

    assert without == []


@pytest.mark.parametrize("cls", CLASSES)
def test_what_a_docstring_says_is_raised_exists(cls: type) -> None:
    texts = [cls.__doc__ or "", *((member.__doc__ or "") for _, member in members(cls))]
    named = {
        name
        for text in texts
        for section in re.findall(r"Raises:\n((?:\s{4,}.*\n?)+)", inspect.cleandoc(text) + "\n")
        for name in re.findall(r"^\s{4}([A-Z]\w+):", section, re.MULTILINE)
    }

    places = (errors, builtins, importlib.import_module(".".join(cls.__module__.split(".")[:2])))
    assert {name for name in named if not any(hasattr(place, name) for place in places)} == set()
