"""The settings that a session on a cluster has by itself."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest

from penstock.pipeline.spark.cluster import (
    DEFAULT_CORES,
    address_towards,
    cluster_settings,
    is_clustered,
    planned_cores,
)
from penstock.pipeline.spark.driver.jvm import brief, classic_settings, java_reasons
from penstock.pipeline.spark.session import SparkRuntime

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
