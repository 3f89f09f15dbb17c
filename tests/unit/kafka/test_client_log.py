import logging

import pytest

from penstock.kafka.client_log import CLIENT_LOG, SeldomLog


def test_a_warning_that_repeats_itself_is_written_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    seldom = SeldomLog(logging.getLogger("t"), clock=lambda: now[0])
    for second in range(0, 130, 10):
        now[0] = second
        seldom.warning("down", "down at %d", second)
        if second == 50:
            seldom.warning("other", "something else")
    assert caplog.messages == ["down at 0", "something else", "down at 60", "down at 120"]


def test_lines_of_the_client_pass_unless_the_worker_says_the_same(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for facility in ("FAIL", "GETPID", "ERROR", "CONFWARN"):
        CLIENT_LOG.warning("%s [%s] %s", facility, "rdkafka#producer-1", "text")
    assert caplog.messages == ["CONFWARN [rdkafka#producer-1] text"]
    caplog.set_level(logging.DEBUG)
    CLIENT_LOG.warning("%s [%s] %s", "FAIL", "rdkafka#producer-1", "text")
    assert caplog.messages[1:] == ["FAIL [rdkafka#producer-1] text"]
