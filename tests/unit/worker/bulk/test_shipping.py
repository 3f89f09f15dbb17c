"""What goes to executors, and how it is packed."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from testkit.connectors.bulk_tasks import Marked
from testkit.processes.end_at import EndAt

from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import SimpleHeaderConverter
from penstock.errors import ConnectException
from penstock.pipeline.batch.batches import InstanceRecipe
from penstock.telemetry import no_probe
from penstock.worker.bulk.shipping import (
    Parts,
    TransformRecipe,
    cannot_run,
    packed,
    probe_for_executors,
    refusal,
    shipped,
)


def test_a_probe_goes_only_where_it_is_made_for_that() -> None:
    assert probe_for_executors(lambda point: None) is no_probe
    end = EndAt("nowhere")
    assert probe_for_executors(end) is end
    assert pickle.loads(packed(end, "it")) == end
    packed(no_probe, "it")


def test_parts_are_made_where_they_arrive() -> None:
    json, header = InstanceRecipe(JsonConverter, {"schemas.enable": "false"}), InstanceRecipe(SimpleHeaderConverter, {})
    chain = (TransformRecipe("marked", InstanceRecipe(Marked, {"refuse": "x"}), None, False),)
    parts: Parts = pickle.loads(packed(Parts("orders", json, json, header, chain), "it"))
    key, value = parts.converters()
    assert value.from_connect_data("t", None, {"a": 1}) == b'{"a":1}'
    assert key is not value
    [stage] = parts.transforms()
    assert (stage.alias, type(stage.transformation), stage.props) == ("marked", Marked, {"refuse": "x"})


def test_what_cannot_be_packed_is_named() -> None:
    with pytest.raises(ConnectException, match="The work of it cannot be sent to Spark's executors"):
        packed(lambda: None, "The work of it")


@pytest.mark.parametrize(
    "text",
    [
        "Job aborted due to stage failure: Task 0 failed 4 times\njava.io.InvalidClassException: "
        "org.apache.spark.rdd.RDD; local class incompatible: stream classdesc serialVersionUID = 1, local class 2\n"
        "Driver stacktrace:",
        "java.lang.NoSuchMethodError: 'void org.apache.spark.scheduler.Task'",
    ],
)
def test_executors_with_another_version_of_spark_are_told_with_what_to_do(text: str) -> None:
    told = cannot_run(text, "4.3.0", [3, 13])
    assert "another version of Spark than the worker, which has 4.3.0: java." in told
    assert "Install Spark 4.3.0 on the master and the Spark workers" in told
    told = refusal(["have Spark 4.0.1, and the worker has 4.3.0"], "0.2", [3, 13])
    assert told.startswith("Executors of Spark have Spark 4.0.1, and the worker has 4.3.0")


def test_shipped_work_needs_nothing_of_penstock_until_it_is_called() -> None:
    from pyspark import cloudpickle

    sent = cloudpickle.dumps(shipped(pickle.dumps(_echo), ["/nowhere"]))
    assert b"penstock.worker.bulk.executor" not in sent
    work: Any = pickle.loads(sent)
    assert list(work(iter([1, 2]))) == [1, 2]


def _echo(batches: Any) -> Any:
    yield from batches
