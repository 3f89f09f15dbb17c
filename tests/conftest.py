"""Fixtures shared by all tests: free ports, one broker and one Spark session for the whole run, both made on demand."""

import gc
import os
import signal
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from penstock.broker import free_port as find_free_port
from penstock.testing.kit.fixtures import broker
from tests.java_calls import leaves_no_answer

if TYPE_CHECKING:
    from penstock.pipeline.spark.session import SparkRuntime


#: The kit's: a running single-node Kafka. Mark its tests with `broker` and use topic and group names of their own.
__all__ = ["broker"]

#: Brokers of tests end before code that was compiled for long runs has paid for itself.
os.environ["KAFKA_JVM_PERFORMANCE_OPTS"] = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def pytest_configure(config: pytest.Config) -> None:
    """Tests try less where slow ones are left out: see ``tests.shares``, which is imported with the first of them."""
    if "not slow" in config.option.markexpr:
        os.environ["PENSTOCK_QUICK_RUN"] = "1"


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_timeout_set_timer(settings: Any) -> Generator[None, object, object]:
    """A test that is ended while it waits for the JVM leaves nothing to those after it."""
    result = yield
    told = signal.getsignal(signal.SIGALRM)
    if settings.method == "signal" and callable(told):
        signal.signal(signal.SIGALRM, leaves_no_answer(told))
    return result


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Examples in docstrings are looked for in the sources alone: to look through every test takes a second."""
    return [one for one in (yield) if type(one) is pytest.Module]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is made here stays to the end: the garbage collector would go through it again and again, for seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def frees_garbage() -> Iterator[None]:
    """Frees what the tests of a module have left, so that a leak is told with them, and keeps the collector away from
    the rest: tests that collect garbage often would go through it each time."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture
def free_port() -> int:
    """A TCP port that nobody listens on."""
    return find_free_port()


@pytest.fixture(scope="session")
def spark_runtime() -> Iterator["SparkRuntime"]:
    """The Spark session of this test run, started at its first use; mark its tests with `java`."""
    from testkit.spark_settings import QUICK_START

    from penstock.pipeline.spark.session import SparkRuntime

    runtime = SparkRuntime(QUICK_START)
    runtime.start()
    yield runtime
    runtime.stop()
