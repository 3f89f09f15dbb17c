"""The form of log lines."""

import io
import logging
import sys
import threading

from penstock.telemetry import ContextFormatter, log_context


def line(message: str) -> str:
    """One formatted line, without its date."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(ContextFormatter())
    logger = logging.getLogger("penstock.test")
    logger.propagate = False
    logger.addHandler(handler)
    try:
        logger.error(message)
    finally:
        logger.removeHandler(handler)
    date, _, rest = stream.getvalue().partition("] ")
    assert len(date) == len("[2026-01-31 12:00:00,123")
    return rest


def test_lines_of_a_task_name_it() -> None:
    with log_context("a", 0):
        assert line("hello") == "ERROR [a|task-0] hello (penstock.test)\n"
        with log_context("a", 0, "offsets"):
            assert line("hello") == "ERROR [a|task-0|offsets] hello (penstock.test)\n"
    with log_context("a"):
        assert line("hello") == "ERROR [a|worker] hello (penstock.test)\n"
    assert line("hello") == "ERROR hello (penstock.test)\n"


def test_the_context_belongs_to_its_thread() -> None:
    seen: list[str] = []
    with log_context("a", 0):
        thread = threading.Thread(target=lambda: seen.append(line("hello")))
        thread.start()
        thread.join()
    assert seen == ["ERROR hello (penstock.test)\n"]


def test_a_logged_error_is_told_as_in_a_status_and_at_debug_with_all_frames() -> None:
    def logged() -> str:
        try:
            try:
                raise KeyError("inner")
            except KeyError as error:
                raise ValueError("outer") from error
        except ValueError:
            return ContextFormatter().formatException(sys.exc_info())

    assert logged().splitlines()[:2] == ["KeyError: 'inner'", "Led to: ValueError: outer"]
    level = logging.getLogger("penstock").level
    logging.getLogger("penstock").setLevel(logging.DEBUG)
    try:
        assert logged().startswith("Traceback (most recent call last):")
    finally:
        logging.getLogger("penstock").setLevel(level)
