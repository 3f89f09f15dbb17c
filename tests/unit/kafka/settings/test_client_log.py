import logging

import pytest

from penstock.kafka.settings.client_log import CLIENT_LOG


def test_lines_of_the_client_pass_unless_the_worker_says_the_same(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for facility in ("FAIL", "ERROR", "CONFWARN"):
        CLIENT_LOG.warning("%s [%s] %s", facility, "rdkafka#consumer-1", "text")
    assert caplog.messages == ["CONFWARN [rdkafka#consumer-1] text"]
    caplog.set_level(logging.DEBUG)
    CLIENT_LOG.warning("%s [%s] %s", "FAIL", "rdkafka#consumer-1", "text")
    assert caplog.messages[1:] == ["FAIL [rdkafka#consumer-1] text"]
