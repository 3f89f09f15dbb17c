"""The packages of the source, as their docstrings describe them: what these name, and what there is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.unit.docs.pages import ROOT

SOURCE = ROOT / "src"
PACKAGES = sorted(
    ".".join(path.parent.relative_to(SOURCE).parts) for path in (SOURCE / "penstock").rglob("__init__.py")
)

_TOKEN = r"``[^`]+``"
#: Names, and the module that has them: ``A``, ``B`` (``module``).
_PLACED = re.compile(rf"({_TOKEN}(?:(?:,| and| or)\s+{_TOKEN})*)\s+\(({_TOKEN}(?:,\s+{_TOKEN})*)")
_DEFINITION = re.compile(r"^ *(?:async def|def|class) (\w+)", re.MULTILINE)
_WORD = re.compile(r"[a-z_][a-z0-9_]*")


@cache
def tree(path: Path) -> ast.Module:
    """A module of the source, parsed."""
    return ast.parse(text_of(path))


def file_of(name: str) -> Path | None:
    """The file of a package or module; None = there is none."""
    place = SOURCE.joinpath(*name.split("."))
    return next((one for one in (place / "__init__.py", place.with_suffix(".py")) if one.exists()), None)


@cache
def docstring(package: str) -> str:
    """What a package or module says of itself."""
    path = file_of(package)
    return (ast.get_docstring(tree(path)) or "") if path else ""


@cache
def text_of(path: Path) -> str:
    """A file of the source."""
    return path.read_text(encoding="utf-8")


def defines(module: str, name: str) -> bool:
    """True if a module defines a name at its top."""
    path = file_of(module)
    if path is None:
        return False
    # Most are found in the text: to parse all of the source takes seconds.
    defined = rf"^(?:(?:async def|def|class) {name}\b|{name}(?:: [^=\n]+)? = )"
    return bool(re.search(defined, text_of(path), re.MULTILINE)) or name in names_of(module)


@cache
def names_of(module: str) -> set[str]:
    """What a module defines at its top."""
    path = file_of(module)
    return set() if path is None else {name for node in tree(path).body for name in _defined(node)}


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        yield node.name
    elif isinstance(node, ast.Assign):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id
    elif isinstance(node, (ast.If, ast.Try)):
        yield from (name for inner in node.body for name in _defined(inner))


@cache
def modules_of(package: str) -> set[str]:
    """The modules and packages inside of a package."""
    folder = SOURCE.joinpath(*package.split("."))
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    return files | {path.parent.name for path in folder.glob("*/__init__.py")}


@cache
def methods_in(package: str) -> set[str]:
    """Everything that the modules of a package define, methods too."""
    paths = SOURCE.joinpath(*package.split(".")).glob("*.py")
    return {name for path in paths for name in _DEFINITION.findall(text_of(path))}


def tokens(text: str) -> list[str]:
    """What stands in double backticks."""
    return [token.strip("`") for token in re.findall(_TOKEN, text)]


def placed(text: str) -> list[tuple[str, str]]:
    """Names with the module that a docstring says they are in."""
    found = []
    for names, modules in _PLACED.findall(text):
        in_brackets = tokens(modules)
        if len(in_brackets) == 1:
            found += [(name, in_brackets[0]) for name in tokens(names)]
    return found


def faults(package: str, text: str) -> list[str]:
    """What a package's docstring names and is not there."""
    inside = modules_of(package)
    found = [
        f"{package}.{module} has no {name}"
        for name, module in placed(text)
        if module not in inside or (not defines(f"{package}.{module}", name) and name not in inside)
    ]
    for token in tokens(text):
        if re.fullmatch(r"penstock(\.\w+)+", token):
            home, _, name = token.rpartition(".")
            if file_of(token) is None and not defines(home, name):
                found.append(f"there is no {token}")
        elif _WORD.fullmatch(token) and token not in inside and token not in methods_in(package):
            found.append(f"{package} has no {token}")
    return found
