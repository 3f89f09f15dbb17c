import logging

import pytest

from penstock.telemetry.logs import SeldomLog


def test_a_warning_that_repeats_itself_is_written_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    seldom = SeldomLog(logging.getLogger("t"), clock=lambda: now[0])
    for second in range(0, 130, 10):
        now[0] = second
        seldom.warning("down", "down at %d", second)
        if second == 50:
            seldom.warning("other", "something else")
    assert caplog.messages == ["down at 0", "something else", "down at 60", "down at 120"]
