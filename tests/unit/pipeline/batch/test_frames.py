"""How long a batch may be on the session: what takes longer gives the session up, and says so."""

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import ConnectException, SparkOverdueException
from penstock.pipeline.batch.batches import Failures
from penstock.pipeline.batch.frames import FrameRunner, LimitedInTime
from penstock.pipeline.spark.isolated_session import IsolatedSessionLostException, Loss
from penstock.pipeline.spark.session import SparkRuntime
from penstock.transforms.sql.transform import Sql


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


class Jobs:
    """Jobs that some rows take too long for; rows with an odd number are left out of the output."""

    def __init__(self, bad, *, apart=True):
        self.bad, self.apart, self.limits, self.lost = set(bad), apart, set(), 0

    def collect(self, table, plan, limit_s):
        self.limits.add(limit_s)
        rows = table["seq"].to_pylist()
        if self.bad & set(rows):
            self.lost += 1
            told = "it took longer than 60 s"
            raise (
                IsolatedSessionLostException(Loss(1, False, told, overdue=True))
                if self.apart
                else (SparkOverdueException(told))
            )
        kept = [row for row in rows if row % 2 == 0]
        columns = {"seq": pa.array(kept, pa.int64()), "dropped": pa.nulls(len(kept), pa.bool_())}
        return pa.table({**columns, "error": pa.nulls(len(kept), pa.string())}), None


def outcomes(jobs, rows, failures):
    plan: Any = SimpleNamespace(segment=SimpleNamespace(name="Sql", transformation=Sql()))
    table = pa.table({"seq": pa.array(range(rows), pa.int64())})
    found = FrameRunner(jobs)._outcomes(plan, table, failures)
    return [row for one in found for row in np.asarray(one.rows).tolist()]


@pytest.mark.parametrize("bad", [[0], [499], [7, 8], [3, 300]])
def test_the_records_that_take_too_long_are_errors_and_the_others_come_out(bad):
    jobs, failures = Jobs(bad), Failures()
    assert outcomes(jobs, 500, failures) == [row for row in range(0, 500, 2) if row not in bad]
    assert sorted(failures.errors) == bad
    error = failures.errors[bad[0]]
    assert (error.stage, error.exception_class) == ("TRANSFORMATION", ConnectException.java_name)
    assert "it took longer than 60 s. Look for expressions that make very much of a value" in str(error.message)
    assert jobs.limits == {60.0}
    assert jobs.lost <= 1 + 2 * len(bad)


def test_a_batch_with_too_many_of_them_fails_its_task():
    jobs = Jobs(range(500))
    with pytest.raises(ConnectException, match=r"^3 of 500 records .* and each was lost: it took longer than 60 s"):
        outcomes(jobs, 500, Failures())
    assert jobs.lost == 5


def test_without_a_session_apart_the_batch_fails_at_once():
    jobs = Jobs([7], apart=False)
    with pytest.raises(SparkOverdueException, match="with a batch of 500 records: it took longer than 60 s"):
        outcomes(jobs, 500, Failures())
    assert jobs.lost == 1
