"""Tests of a suite that need something of the author's.

Main function: ``without``. Pure.
"""

from __future__ import annotations

from typing import Any


def without(cls: Any, suite: type, hook: str, *tests: str) -> None:
    """Leaves tests out of a subclass of a suite that does not override what they need, so that none is skipped.

    Args:
        cls: The subclass.
        suite: Where the hook is defined.
        hook: The method that has to be overridden.
        tests: The names of the tests.
    """
    for test in tests:
        if getattr(cls, hook) is vars(suite)[hook]:
            setattr(cls, test, None)
        elif getattr(cls, test) is None:
            setattr(cls, test, vars(suite)[test])
