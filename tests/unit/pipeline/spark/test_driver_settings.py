"""What the Spark JVM is started with."""

from __future__ import annotations

import pytest

from penstock.pipeline.spark.jvm import classic_settings, launch_settings


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, "true"),
        ({"spark.master": "local"}, "true"),
        ({"spark.master": "local[2]"}, "true"),
        ({"spark.authenticate": "false"}, "false"),
        # It would have to share a secret with others, which the user gives.
        ({"spark.master": "spark://other:7077"}, None),
        ({"spark.master": "local-cluster[2,1,1024]"}, None),
    ],
)
def test_a_jvm_of_its_own_speaks_to_nobody_else(given: dict[str, str], wanted: str | None) -> None:
    settings = classic_settings(given, "/scratch")
    assert settings.get("spark.authenticate") == wanted


@pytest.mark.parametrize("master", ["local", "local[2]", "local-cluster[2,1,1024]"])
def test_the_driver_of_this_machine_alone_listens_on_the_loopback_address(master: str) -> None:
    settings = classic_settings({"spark.master": master}, "/scratch")
    assert (settings["spark.driver.host"], settings["spark.driver.bindAddress"]) == ("127.0.0.1", "127.0.0.1")


def test_the_command_line_has_what_starts_the_jvm_and_no_more() -> None:
    settings = classic_settings(
        {"spark.jars": "a.jar", "spark.ssl.keyPassword": "s", "spark.hadoop.x": "s"}, "/scratch"
    )
    shown = launch_settings(settings)
    assert shown["spark.jars"] == "a.jar"
    assert shown["spark.driver.extraJavaOptions"] == settings["spark.driver.extraJavaOptions"]
    assert "s" not in shown.values()
