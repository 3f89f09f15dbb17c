"""One name for one thing: two modules of the source do not define public classes of the same name."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from tests.unit.docs.packages import SOURCE, text_of

#: Names that two modules define. Nothing is added here: a class is called what it is.
SHARED: frozenset[str] = frozenset()

_CLASS = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)


def shared(modules: Mapping[str, str]) -> dict[str, list[str]]:
    """The names of public classes that more than one module defines at its top, with these modules."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for module, text in modules.items():
        for name in _CLASS.findall(text):
            found[name].append(module)
    return {name: places for name, places in found.items() if len(places) > 1}


def test_no_class_name_is_defined_by_two_modules() -> None:
    # The kit for authors' tests is beside the layers: its names are those of what it stands for.
    paths = [path.relative_to(SOURCE) for path in sorted((SOURCE / "penstock").rglob("*.py"))]
    found = shared({str(path): text_of(SOURCE / path) for path in paths if path.parts[1] != "testing"})

    assert {name: places for name, places in found.items() if name not in SHARED} == {}, (
        "two classes have one name: call each what it is"
    )
    assert set(found) >= SHARED, "these names are used once by now: take them off the list"


def test_a_name_that_two_modules_define_is_found() -> None:
    modules = {
        "a": "class Piece:\n    pass\n\n\nclass _Own:\n    pass\n",
        "b": "class Piece(Enum):\n    pass\n\n\nclass _Own:\n    pass\n",
        "c": "class Other:\n    class Piece:\n        pass\n",
    }

    assert shared(modules) == {"Piece": ["a", "b"]}
