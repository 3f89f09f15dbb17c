"""When previews may begin."""

from __future__ import annotations

import pytest

from penstock.worker.preview.previewer import AHEAD, SHARE, USUAL_S, Pace

EACH = USUAL_S / (SHARE * 2)


def test_after_a_rest_a_few_begin_at_once_and_the_rest_one_after_the_other() -> None:
    pace = Pace(cores=2)
    waits = [pace.begins(50.0) for _ in range(6)]
    assert waits == pytest.approx([0.0] * AHEAD + [EACH * number for number in range(1, 5)])
    assert pace.begins(100.0) == 0


def test_costly_previews_make_the_next_ones_wait_longer() -> None:
    pace = Pace(cores=2)
    assert pace.begins(0.0) == 0
    pace.ended(USUAL_S * 5)
    assert pace.begins(0.0) == pytest.approx(EACH * (5 - (AHEAD - 1)))


def test_twenty_previews_use_the_share_that_is_theirs() -> None:
    pace = Pace(cores=2)
    used = 3 * USUAL_S
    now = 0.0
    for _ in range(20):
        now += pace.begins(now)
        pace.ended(used)
    assert 20 * used / (now * 2) == pytest.approx(SHARE, rel=0.2)


def test_more_cores_take_more_previews() -> None:
    few, many = Pace(cores=1), Pace(cores=16)
    assert max(few.begins(0.0) for _ in range(10)) == pytest.approx(16 * max(many.begins(0.0) for _ in range(10)))
