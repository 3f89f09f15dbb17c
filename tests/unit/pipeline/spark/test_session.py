"""A job for which the worker has no file descriptor waits, and is given up after a minute."""

import errno

import pytest

from penstock.errors import ConnectException
from penstock.pipeline.spark.session import PATIENCE_S, Shortage
from penstock.threads import lacks_descriptor


def failed_because_of(cause: Exception) -> Exception:
    try:
        try:
            raise cause
        except OSError:
            # As Py4J does it.
            raise RuntimeError("An error occurred while trying to connect to the Java server")  # noqa: B904
    except RuntimeError as error:
        return error


def test_what_led_to_an_error_counts() -> None:
    assert lacks_descriptor(failed_because_of(OSError(errno.EMFILE, "Too many open files")))
    assert not lacks_descriptor(failed_because_of(ConnectionRefusedError(errno.ECONNREFUSED, "refused")))


def test_a_job_is_tried_again_for_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds

    shortage, fault = Shortage(pause, lambda: now[0]), OSError(errno.EMFILE, "Too many open files")
    while now[0] < PATIENCE_S:
        shortage.wait(fault)
    with pytest.raises(ConnectException, match=r"for 60 s now\. Raise the limit of open files"):
        shortage.wait(fault)

    assert len(caplog.messages) <= 1
