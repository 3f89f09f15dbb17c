"""Log levels over REST, and what ``Loggers`` knows."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from tests.unit.rest.api_client import Api, serving

from penstock.telemetry.logs import LoggerLevel, Loggers

L = "/admin/loggers"


@pytest.fixture
def api() -> Iterator[Api]:
    before = {
        name: logger.level for name, logger in logging.root.manager.loggerDict.items() if hasattr(logger, "level")
    }
    root = logging.root.level
    logging.root.setLevel(logging.INFO)
    with serving() as started:
        yield started
    logging.root.setLevel(root)
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def test_a_level_changes_a_logger_and_those_below_it(api: Api) -> None:
    assert api.call("PUT", f"{L}/rest.test.one", {"level": "DEBUG"}) == (200, ["rest.test.one"])
    assert api.call("PUT", f"{L}/rest.test", {"level": "warn"}) == (200, ["rest.test", "rest.test.one"])
    status, level = api.call("GET", f"{L}/rest.test.one")
    assert (status, level["level"]) == (200, "WARN")
    assert isinstance(level["last_modified"], int)
    assert logging.getLogger("rest.test.one").getEffectiveLevel() == logging.WARNING
    assert api.call("PUT", f"{L}/rest.test?scope=WORKER", {"level": "WARN"}) == (200, [])
    assert api.call("PUT", f"{L}/rest.test?scope=cluster", {"level": "ERROR"}) == (204, None)
    assert api.call("GET", f"{L}/rest.test")[1]["level"] == "ERROR"
    everything = api.call("GET", L)[1]
    assert everything["root"]["last_modified"] is None
    assert everything["rest.test"]["level"] == "ERROR"


def test_levels_and_loggers_that_are_not_there_are_refused(api: Api) -> None:
    assert api.error("PUT", f"{L}/rest.other", {"level": "LOUD"}) == (404, "invalid log level 'LOUD'.")
    assert api.error("PUT", f"{L}/rest.other", {}) == (400, "Desired 'level' parameter was not specified in request.")
    assert api.error("PUT", f"{L}/rest.other", ["DEBUG"])[0] == 400
    assert api.error("GET", f"{L}/rest.other") == (404, "Logger rest.other not found.")


def test_the_root_stands_for_all_and_levels_are_javas() -> None:
    logging.getLogger("rest.third").setLevel(logging.INFO)
    before = {name: logging.getLogger(name).level for name in ("", *logging.root.manager.loggerDict)}
    loggers = Loggers(now_ms=lambda: 42)
    try:
        changed = loggers.set_level("ROOT", "fatal")
        assert {"root", "rest.third"} <= set(changed)
        assert loggers.level("rest.third") == LoggerLevel("FATAL", 42)
        for text in ("TRACE", "OFF", "ALL"):
            loggers.set_level("rest.third", text)
            level = loggers.level("rest.third")
            assert level is not None
            assert level.level == text
    finally:
        for name, number in before.items():
            logging.getLogger(name).setLevel(number)
