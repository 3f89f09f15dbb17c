"""How much of what a test could try is tried: all of it, or a share in a run without slow tests.

Main objects: ``QUICK``, which is True in such a run, and ``share``. Set when a run begins, before tests are collected.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, TypeVar

#: Set by the tests' conftest where slow tests are left out.
QUICK_RUN: Final = "PENSTOCK_QUICK_RUN"
QUICK: Final = QUICK_RUN in os.environ

T = TypeVar("T")


def share(tried: Sequence[T], one_in: int = 4) -> Sequence[T]:
    """All of what may be tried, or one in four, evenly, where slow tests are left out."""
    return tried[::one_in] if QUICK else tried
