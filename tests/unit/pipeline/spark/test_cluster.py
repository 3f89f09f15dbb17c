"""The settings that a session on a cluster has by itself.

When a session on a cluster counts as lost for having no executor, and what is said of that.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from testkit.doubles.contexts import ManualClock

from penstock.pipeline.spark.cluster import (
    DEFAULT_CORES,
    ExecutorWatch,
    NoExecutorsException,
    StandaloneMaster,
    address_towards,
    cluster_settings,
    is_clustered,
    planned_cores,
    reason_of,
)
from penstock.pipeline.spark.jvm import (
    JavaMissingException,
    SessionRefusedException,
    brief,
    classic_settings,
    java_reasons,
)
from penstock.pipeline.spark.session import SparkRuntime
from penstock.telemetry.waits import goes_on, standstill_of
from penstock.threads import in_thread

STANDALONE = {"spark.master": "spark://spark:7077"}
OWN = "192.0.2.7"


def defaults(conf: Mapping[str, str], environment: Mapping[str, str] | None = None) -> dict[str, str | None]:
    return cluster_settings(conf, lambda host, port: OWN, environment or {})


@pytest.mark.parametrize(
    ("conf", "clustered"),
    [
        ({}, False),
        ({"spark.master": "local"}, False),
        ({"spark.master": "local[4]"}, False),
        ({"spark.master": "local-cluster[2,1,1024]"}, True),
        ({"spark.master": "yarn"}, True),
        ({"spark.master": "k8s://https://k8s:6443"}, True),
        ({"spark.remote": "sc://spark:15002", "spark.master": "spark://spark:7077"}, False),
    ],
)
def test_which_sessions_have_executors_of_their_own(conf: dict[str, str], clustered: bool) -> None:
    assert is_clustered(conf) is clustered


@pytest.mark.parametrize("conf", [{}, {"spark.master": "local[2]"}, {"spark.remote": "sc://spark"}])
def test_a_session_without_a_cluster_has_none_of_them(conf: dict[str, str]) -> None:
    assert defaults(conf) == {}
    assert planned_cores(conf) is None


def test_executors_elsewhere_reach_the_driver_at_the_address_that_leads_to_the_master() -> None:
    asked = []

    def reach(host: str, port: int) -> str | None:
        asked.append((host, port))
        return OWN if host == "second" else None

    found = cluster_settings({"spark.master": "spark://first:7000,second,third:7002"}, reach, {})
    assert found["spark.driver.host"] == OWN
    assert asked == [("first", 7000), ("second", 7077)]


@pytest.mark.parametrize("name", ["spark.driver.host", "spark.driver.bindAddress", "spark.cores.max"])
def test_what_the_user_says_stays(name: str) -> None:
    assert name not in defaults({**STANDALONE, name: "x"})
    assert classic_settings({**STANDALONE, name: "x"}, "/scratch")[name] == "x"


@pytest.mark.parametrize("name", ["SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME"])
def test_what_sparks_own_variables_say_stays(name: str) -> None:
    assert defaults(STANDALONE, {name: "192.0.2.9"})["spark.driver.host"] is None


@pytest.mark.parametrize("master", ["yarn", "k8s://https://k8s:6443"])
def test_other_clusters_choose_address_and_executors_by_themselves(master: str) -> None:
    settings = classic_settings({"spark.master": master}, "/scratch")
    assert {"spark.driver.host", "spark.driver.bindAddress", "spark.cores.max"}.isdisjoint(settings)


def test_a_master_that_no_route_leads_to_is_told_of_and_left_to_spark(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = cluster_settings(STANDALONE, lambda host, port: None, {})
    assert found["spark.driver.host"] is None
    assert "No route leads to spark://spark:7077" in caplog.text


def test_the_address_towards_a_host() -> None:
    assert address_towards("localhost", 7077) in ("127.0.0.1", "[::1]")
    assert address_towards("no-such-host.invalid", 7077) is None


@pytest.mark.parametrize(
    ("conf", "cores"),
    [
        (STANDALONE, DEFAULT_CORES),
        ({**STANDALONE, "spark.cores.max": "16"}, 16),
        ({**STANDALONE, "spark.cores.max": "many"}, None),
        ({**STANDALONE, "spark.dynamicAllocation.enabled": "true"}, None),
        ({"spark.master": "yarn"}, 2),
        ({"spark.master": "yarn", "spark.executor.instances": "3", "spark.executor.cores": "4"}, 12),
        ({"spark.master": "yarn", "spark.dynamicAllocation.enabled": "true"}, None),
        (
            {
                "spark.master": "k8s://https://k8s",
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.maxExecutors": "5",
            },
            5,
        ),
    ],
)
def test_cores_that_the_settings_ask_for(conf: dict[str, str], cores: int | None) -> None:
    assert planned_cores(conf) == cores


def test_work_is_cut_for_the_cores_that_spark_has_counted() -> None:
    runtime = SparkRuntime(STANDALONE)
    assert runtime.parallelism == DEFAULT_CORES
    assert runtime._executors is not None
    runtime._executors.cores = 7
    assert runtime.parallelism == 7


def test_the_reason_that_spark_gives_is_told() -> None:
    text = (
        "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
        ": org.apache.spark.SparkException: it does not start\n\tat org.apache.spark.A\n"
        "Caused by: java.io.IOException: one\n\tat x.Y\n\t... 3 more\nCaused by: java.net.BindException: in use\n\tat z"
    )
    assert java_reasons(text) == [
        "org.apache.spark.SparkException: it does not start",
        "java.net.BindException: in use",
    ]
    said = brief(RuntimeError(text))
    assert said == (
        "RuntimeError: org.apache.spark.SparkException: it does not start | caused by java.net.BindException: in use"
    )
    assert brief(ValueError("first\nsecond")) == "ValueError: first"


CLUSTER = {"spark.master": "spark://spark:7077"}


@pytest.fixture
def clock() -> Iterator[ManualClock]:
    yield ManualClock()
    goes_on("Spark")


def test_one_without_executors_is_told_of_after_a_moment_and_lost_after_the_timeout(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    watch = ExecutorWatch(CLUSTER, 30, clock)
    watch.count(2)
    for second in range(40):
        clock.now = second
        watch.count(0)
        assert (watch.trouble is None) == (second < 5)
        assert (watch.lost is None) == (second < 30)
    assert "has had no executor any more since" in str(watch.trouble)
    assert "none for 39 s (penstock.spark.executors.timeout.ms)" in str(watch.lost)
    assert [one.levelno for one in caplog.records] == [logging.WARNING]
    standstill = standstill_of("Spark")
    assert standstill is not None
    assert "spark://spark:7077" in standstill.text
    watch.count(1)
    assert (watch.trouble, watch.lost, standstill_of("Spark")) == (None, None, None)


def test_the_next_session_is_given_twice_the_time_and_the_first_moment_is_remembered(clock: ManualClock) -> None:
    watch = ExecutorWatch(CLUSTER, 30, clock)

    def lost_at(moment: float) -> bool:
        clock.now = moment
        watch.count(0)
        return watch.lost is not None

    assert [lost_at(0), lost_at(29), lost_at(30)] == [False, False, True]
    watch.replaced()
    watch.begin()
    assert [lost_at(50), lost_at(109), lost_at(110)] == [False, False, True]
    assert "has given this worker no executor since" in str(watch.trouble)
    watch.count(1)
    assert [lost_at(200), lost_at(230)] == [False, True]


def test_one_that_never_gets_any_is_given_ten_times_the_time_at_most(clock: ManualClock) -> None:
    watch = ExecutorWatch(CLUSTER, 30, clock)
    waits = []
    for _ in range(6):
        watch.begin()
        watch.count(0)
        began = clock.now
        while watch.lost is None:
            clock.now += 10
        waits.append(clock.now - began)
        watch.replaced()
    assert waits == [30, 60, 120, 240, 300, 300]


def test_with_dynamic_allocation_only_jobs_that_wait_count(clock: ManualClock) -> None:
    watch = ExecutorWatch({**CLUSTER, "spark.dynamicAllocation.enabled": "TRUE"}, 30, clock)
    watch.count(0, waits=False)
    clock.now = 100
    assert (watch.trouble, watch.lost) == (None, None)
    watch.count(0, waits=True)
    clock.now = 131
    assert watch.lost


def test_a_cluster_that_was_there_before_is_waited_for_and_one_that_never_was_is_not() -> None:
    runtime, local = SparkRuntime(CLUSTER), SparkRuntime({})
    refused, none = SessionRefusedException("no master"), NoExecutorsException("none")
    assert runtime._tries_again(none, 50, 9999)
    assert not runtime._tries_again(refused, 1, 0)
    runtime._generation = local._generation = 1
    assert runtime._tries_again(refused, 50, 9999)
    assert not runtime._tries_again(JavaMissingException("no Java"), 1, 0)
    assert not local._tries_again(refused, 1, 0)


def test_a_master_that_is_asked_says_why(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def why(self: StandaloneMaster, application: str) -> str:
        asked.append(application)
        return "All 2 cores of the cluster are taken by other (app-2, 2)"

    monkeypatch.setattr(StandaloneMaster, "why", why)
    watch, session = ExecutorWatch(CLUSTER, 30, clock), Session()
    watch.ask(session)  # type: ignore[arg-type]
    session.executors = 0
    for second in (1, 2, 3, 4, 5, 6, 7, 8):
        clock.now = second
        watch.ask(session)  # type: ignore[arg-type]
        if watch._answer is not None:
            watch._answer.result(5)
    assert asked[0] == "app-1"
    assert "waits for cores of the cluster. All 2 cores of the cluster are taken by other (app-2, 2)" in str(
        watch.trouble
    )
    assert "(the last executor was removed: worker lost)" in str(watch.trouble)
    session.executors = 1
    watch.ask(session)  # type: ignore[arg-type]
    assert watch.trouble is None
    session.executors = 0
    clock.now = 100
    watch.ask(session)  # type: ignore[arg-type]
    assert "taken by other" not in str(watch._why)


class Session:
    """A session, its context and its lists, as Java has them."""

    def __init__(self) -> None:
        self.executors = 1

    def __getattr__(self, name: str) -> object:
        known = {
            "size": self.executors + 1,
            "applicationId": "app-1",
            "defaultParallelism": 2,
            "getActiveJobIds": (),
            "executorList": Removed(),
        }
        if name in ("sparkContext", "_jsc"):
            return self
        return lambda *_: known.get(name, self)


class Removed:
    """The executors that were there: one is removed."""

    def size(self) -> int:
        return 1

    def __getattr__(self, name: str) -> object:
        known = {"isDefined": True, "getTime": 5}
        if name == "get":
            return lambda: self
        return lambda *_: known.get(name, self)

    def __str__(self) -> str:
        return "worker lost\nmore of it"


def state(*workers: Mapping[str, object], **own: object) -> Mapping[str, object]:
    applications = [{"id": "app-1", "name": "mine", "cores": 0, "memoryperexecutor": 512}, *own.get("others", ())]  # type: ignore[misc]
    return {"status": "ALIVE", "workers": workers, "activeapps": applications}


def one(cores: int, used: int, memory: int = 1024, memoryused: int = 0, state: str = "ALIVE") -> Mapping[str, object]:
    return {"state": state, "cores": cores, "coresused": used, "memory": memory, "memoryused": memoryused}


OTHERS = [{"id": f"app-{number}", "name": f"other {number}", "cores": number} for number in range(2, 7)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (state(), "No workers are registered with the master"),
        (state(one(4, 0, state="DEAD")), "No workers are registered with the master"),
        (
            state(one(4, 4), others=OTHERS[:1]),
            "All 4 cores of the cluster are taken by other 2 (app-2, 2): end one of them",
        ),
        (
            state(one(4, 4), one(2, 2), others=OTHERS),
            "by other 6 (app-6, 6), other 5 (app-5, 5), other 4 (app-4, 4) and 2 ",
        ),
        (state(one(4, 4)), "taken by applications that are ending"),
        (state(one(4, 3, memoryused=600)), "has the 512 MiB that an executor needs (424 MiB are free)"),
        (state(one(4, 4), one(4, 1)), "The cluster has 3 free cores and the memory for an executor"),
        ({"status": "ALIVE", "workers": [one(1, 0)], "activeapps": OTHERS}, "does not know this worker's application"),
        ({"workers": [{"cores": "x", "state": 1}], "activeapps": [{}]}, "does not know"),
    ],
)
def test_the_state_of_a_master_says_why_an_application_has_no_executor(given: Mapping[str, object], said: str) -> None:
    assert said in reason_of(given, "app-1")


class Page(BaseHTTPRequestHandler):
    body = b""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/json/" else 404)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def page() -> Iterator[type[Page]]:
    with HTTPServer(("127.0.0.1", 0), Page) as server:
        serving = in_thread("page", server.serve_forever)
        Page.port = server.server_port  # type: ignore[attr-defined]
        yield Page
        server.shutdown()
        serving.result(5)


def test_a_master_is_asked_for_its_state_and_one_that_is_away_is_named(page: type[Page], free_port: int) -> None:
    port = page.port  # type: ignore[attr-defined]
    settings = {"spark.master": f"spark://127.0.0.1:{free_port}", "spark.master.ui.port": str(port)}
    master = StandaloneMaster.of(settings)
    assert master is not None
    page.body = json.dumps(state()).encode()
    assert master.why("app-1").startswith("No workers are registered")
    for body in (b"<html>", b"[]", b"{}", b'{"workers": 1}', json.dumps({**state(), "status": "STANDBY"}).encode()):
        page.body = body
        away = b"STANDBY" not in body
        assert master.why("app-1").startswith(f"The master at 127.0.0.1:{free_port} (" if away else "") is True
        # It is there, and its web UI is not: nothing is known.
        there = StandaloneMaster.of({**settings, "spark.master": f"spark://127.0.0.1:{port}"})
        assert there is not None
        assert there.why("app-1") == ""


@pytest.mark.parametrize("master", ["yarn", "k8s://https://there", "local[2]", ""])
def test_other_clusters_are_not_asked(master: str) -> None:
    assert StandaloneMaster.of({"spark.master": master}) is None
