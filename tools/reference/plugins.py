"""Writes ``docs/transforms.md`` and ``docs/converters.md``: the stock transforms, predicates and converters.

Main functions: ``transforms_page`` and ``converters_page``. What a class does is taken from its docstring, its settings
from its ``ConfigDef``, and its examples from ``tools.reference.examples``. Write the pages again with
``python -m tools.reference.plugins docs/transforms.md docs/converters.md``.

Thread: pure functions, but for the command.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from penstock.plugins.kinds import PluginDescriptor, PluginKind, simple_name
from penstock.plugins.stock import STOCK
from tools.reference.examples import (
    ConverterExample,
    TransformExample,
    converter_examples,
    transform_examples,
)
from tools.reference.settings import definition_of
from tools.reference.tables import cell, default_of, markdown, valid_values

_MADE: Final = """This page is made from the code by
`python -m tools.reference.plugins docs/transforms.md docs/converters.md`; a test fails when it is out of
date, and another one runs every example through the pipeline of a task. What differs from Java's classes is in
[compatibility.md](compatibility.md)."""

_NOTATION: Final = """Values are written as JSON, `as` their schema where they have one. Bytes are base64, moments are
ISO 8601, a Decimal is text; without a schema these say what they are: `{"$timestamp": "2017-01-03T06:30:01.864Z"}`.
Schemas are written short: `Order v2 {id: int32, name: string?, n: int64? = 7}` is a struct called Order, of version 2;
`?` says that a value is optional, `= 7` what a null stands for; `[string]` is an array, `map<string, int32>` a
map, and `with` names parameters."""

_TRANSFORMS: Final = f"""# Transforms and predicates

{_MADE}

A connector names its chain in `transforms`, and each member's class and settings below `transforms.<alias>.`. A
transform with a `predicate` runs for the records that this holds for, with `negate=true` for all others. Each stock
transform is Spark columns, so a chain of them is one plan. How to write your own is in
[writing-connectors.md](writing-connectors.md).

{_NOTATION} A result shows the parts of a record that changed. What an example does not mention: topic `orders`,
partition 0, offset 5, timestamp 2017-01-03T06:30:01.864Z, no key, no headers, the value null.
"""

_CONVERTERS: Final = f"""# Converters

{_MADE}

`key.converter` and `value.converter` make bytes of keys and values and read them again, `header.converter` does so for
headers. The worker names them for all connectors; a connector that names its own brings all settings of it along. All
converters on this page but those with a schema registry can be used for headers too.

Records of a batch are converted together, as columns. With a schema registry that holds for Avro of one topic and
schema, and for reading flat messages in Protobuf: scalars and enums of proto3. [What has no
columns](decisions/avro-in-blocks.md), all other Protobuf and JSON Schema are converted one by one.

{_NOTATION} Messages are shown as text where they are text, else as hexadecimal digits.
"""


def transforms_page() -> str:
    """The page of transforms and predicates, Markdown."""
    examples: dict[str, list[str]] = {}
    for one in transform_examples():
        examples.setdefault(one.of, []).append(_transform_example(one))
    return _page(_TRANSFORMS, {"Transforms": PluginKind.TRANSFORMATION, "Predicates": PluginKind.PREDICATE}, examples)


def converters_page() -> str:
    """The page of converters and header converters, Markdown."""
    examples: dict[str, list[str]] = {}
    for one in converter_examples():
        examples.setdefault(one.of, []).append(_converter_example(one))
    kinds = {"Keys, values and headers": PluginKind.CONVERTER, "Headers alone": PluginKind.HEADER_CONVERTER}
    return _page(_CONVERTERS, kinds, examples)


def entries(kind: PluginKind) -> dict[str, list[PluginDescriptor]]:
    """The stock classes of a kind by their titles: the forms for keys and values are one entry.

    A converter that is a header converter too stands among the converters only.
    """
    converters = {one.target for one in STOCK if one.kind is PluginKind.CONVERTER}
    found: dict[str, list[PluginDescriptor]] = {}
    for one in STOCK:
        if one.kind is kind and (kind is not PluginKind.HEADER_CONVERTER or one.target not in converters):
            found.setdefault(simple_name(one.name).partition("$")[0], []).append(one)
    return dict(sorted(found.items()))


def _page(head: str, kinds: Mapping[str, PluginKind], examples: Mapping[str, Sequence[str]]) -> str:
    parts = [head]
    for heading, kind in kinds.items():
        parts.append(f"## {heading}\n")
        for title, forms in entries(kind).items():
            parts += _entry(title, forms, examples.get(title, ()))
    return "\n".join(parts)


def _entry(title: str, forms: Sequence[PluginDescriptor], examples: Iterable[str]) -> list[str]:
    keys = definition_of(forms[0]).keys.values()
    rows = [
        (f"`{key.name}`", key.type.value.lower(), default_of(key), valid_values(key), cell(key.doc)) for key in keys
    ]
    table = markdown(("setting", "type", "default", "valid", "meaning"), rows)
    return [
        f"### {title}\n",
        *_description(forms[0]),
        *[_names(one) for one in forms],
        table if rows else "It has no settings.\n",
        *examples,
    ]


def _names(plugin: PluginDescriptor) -> str:
    """The names of a class, the one that REST lists first."""
    own = plugin.target.replace(":", ".")
    others = sorted(plugin.names() - {plugin.name, plugin.target, own}, key=lambda name: (len(name), name))
    also = ", ".join(f"`{name}`" for name in others)
    return f"`{plugin.name}`, or {also}\n"


def _class(plugin: PluginDescriptor) -> type:
    module, _, name = plugin.target.partition(":")
    found: type = getattr(importlib.import_module(module), name)
    return found


def _description(plugin: PluginDescriptor) -> list[str]:
    """Returns the description of a class, from its docstring, or from its module's if that is about this class only."""
    cls = _class(plugin)
    title = simple_name(plugin.name).partition("$")[0]
    paragraphs = inspect.cleandoc(sys.modules[cls.__module__].__doc__ or "").split("\n\n")
    if not paragraphs[0].startswith(f"{title}: "):
        return [_marked(_sentences(inspect.cleandoc(cls.__doc__ or "").partition("\n\n")[0]))]
    first = _sentences(paragraphs[0].removeprefix(f"{title}: "))
    further = [one for one in paragraphs[1:] if title in GUIDES and not one.startswith(("Thread:", "Source:"))]
    return [_marked(f"{first[0].upper()}{first[1:]}"), *map(_marked, further)]


#: Classes whose module says to users how they are used.
GUIDES: Final = frozenset({"Sql"})


def _sentences(text: str) -> str:
    """A text without the names of classes at its end."""
    return re.sub(r"\s+(?:Class|Classes) ``.*\Z", "", text, flags=re.S)


def _marked(text: str) -> str:
    """A paragraph of a docstring as Markdown."""
    return re.sub("::$", ":", text.replace("``", "`")) + "\n"


def _transform_example(example: TransformExample) -> str:
    return (
        f"{example.title}:\n\n<!-- example -->\n```properties\n{example.config}\n```\n\n"
        f"```\n{example.given}\n```\n\nbecomes\n\n```\n{example.result}\n```\n"
    )


def _converter_example(example: ConverterExample) -> str:
    parts = [f"{example.title}:\n\n<!-- example -->\n```properties\n{example.config}\n```\n"]
    outcome = "cannot be read:" if example.fails_to_read else "is read as"
    if example.value is None:
        parts.append(f"The message\n\n```\n{example.message}\n```\n\n{outcome}\n\n```\n{example.read}\n```\n")
        return "\n".join(parts)
    outcome = "cannot be written:" if example.fails else "is written as"
    parts.append(f"```\n{example.value}\n```\n\n{outcome}\n\n```\n{example.message}\n```\n")
    if example.read is not None:
        parts.append(f"and read as\n\n```\n{example.read}\n```\n")
    return "\n".join(parts)


def main(arguments: Sequence[str]) -> int:
    """Writes the two pages to two files."""
    if len(arguments) != 2:
        sys.stderr.write("usage: python -m tools.reference.plugins TRANSFORMS_FILE CONVERTERS_FILE\n")
        return 2
    for path, text in zip(arguments, (transforms_page(), converters_page()), strict=True):
        Path(path).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
