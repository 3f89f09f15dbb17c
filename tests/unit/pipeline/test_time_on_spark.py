"""How long a batch may be on the session: what takes longer gives the session up, and says so."""

import threading

import pytest

from penstock.errors import SparkOverdueException
from penstock.pipeline.batch.framing import LimitedInTime
from penstock.pipeline.spark.session import SparkRuntime
from penstock.transforms.sql import Sql


@pytest.fixture
def runtime():
    one = SparkRuntime({})
    one._generation = 1
    return one


def lost(runtime, timeout_s):
    with runtime._changed:
        return runtime._changed.wait_for(lambda: runtime._lost_generation == 1, timeout_s)


def test_what_takes_longer_gives_up_the_session_and_fails_with_the_limit(runtime):
    def job():
        with runtime.within(0.01):
            assert lost(runtime, 10)
            # As a call that waits for the JVM ends when that is killed.
            raise ConnectionError

    with pytest.raises(SparkOverdueException, match="longer than 0 s"):
        job()


@pytest.mark.parametrize("limit_s", [None, 0.2])
def test_what_ends_in_time_keeps_the_session_and_its_own_error(runtime, limit_s):
    with pytest.raises(ConnectionError), runtime.within(limit_s):
        raise ConnectionError
    with runtime.within(limit_s):
        pass
    assert not lost(runtime, 0.4)
    assert not [one for one in threading.enumerate() if one.name == "spark-limit"]


def test_only_what_users_write_is_limited():
    assert isinstance(Sql(), LimitedInTime)
    assert Sql().limit_s == 60
