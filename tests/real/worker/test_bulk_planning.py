"""Queries of bulk runs on a session of Spark: how they are cut, what goes to executors, which are refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from testkit.connectors.bulk_tasks import Counted, Marked

from penstock.api import SourceFrame
from penstock.api.bulk import BulkFrame
from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import SimpleHeaderConverter
from penstock.errors import ConnectException
from penstock.pipeline.batch.batches import InstanceRecipe, PipelineSpec, TransformStage
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.spark.session import SparkRuntime
from penstock.transforms.topics import RegexRouter
from penstock.worker.bulk.executor import HASH, PlannedPath, RowPath
from penstock.worker.bulk.planning import Chain, Planned, planned, run_session
from penstock.worker.bulk.shipping import Parts, own_path, probe_executors, shipped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.java]
JSON = {"schemas.enable": "false"}


@pytest.fixture(scope="module")
def session(spark_runtime: SparkRuntime) -> SparkSession:
    return run_session(spark_runtime.session(120), 3)


class Lab:
    def __init__(
        self,
        runtime: SparkRuntime,
        session: SparkSession,
        *chain: TransformStage,
        json: Mapping[str, str] = JSON,
    ) -> None:
        key, value, header = JsonConverter(), JsonConverter(), SimpleHeaderConverter()
        key.configure(json, True)
        value.configure(json, False)
        header.configure({})
        jobs = SparkJobs(runtime)
        recipe = InstanceRecipe(JsonConverter, json)
        parts = Parts("c", recipe, recipe, InstanceRecipe(SimpleHeaderConverter, {}))
        self._chain = Chain(SourcePipeline(runtime, PipelineSpec(key, value, header, chain), jobs), jobs, parts)
        self._session = session

    def plan(self, data: Callable[[SparkSession], DataFrame], **own: Any) -> Planned:
        given = {"topic": "t", "source_partition": {"a": 1}, "source_offset": {"b": 1}, "run": "first", **own}
        return planned(self._session, BulkFrame(data=data, **given), self._chain)


@pytest.fixture
def lab(spark_runtime: SparkRuntime, session: SparkSession) -> Lab:
    return Lab(spark_runtime, session)


def stage(kind: type[Any], **config: str) -> TransformStage:
    made = kind()
    made.configure(config)
    return TransformStage("one", made)


def test_executors_get_bytes_and_a_number_for_each_row(lab: Lab) -> None:
    found = lab.plan(lambda session: session.range(0, 9, 1, 4).selectExpr("id", "concat('k', id) AS name"))
    assert isinstance(found.path, PlannedPath)
    assert found.partitions == 4
    rows = found.rows.toArrow()
    assert rows.column("value").to_pylist()[:2] == ['{"id":0,"name":"k0"}', '{"id":1,"name":"k1"}']
    assert len(set(rows.column(HASH).to_pylist())) == 9


#: A column of each type that a table of Spark has, with a null in the last row.
TYPES = {
    "tiny": "cast(id - 1 AS tinyint)",
    "small": "cast(-id AS smallint)",
    "whole": "cast(id * 70000 AS int)",
    "long": "id * 9007199254740993",
    "single": "cast(id / 3 AS float)",
    "double": "cast(id / 3 AS double)",
    "yes": "id % 2 = 0",
    "text": "concat('a \"quoted\" \u00e9 ', id)",
    "octets": "cast(concat('b', id) AS binary)",
    "money": "cast(id * 1.25 - 2 AS decimal(12,2))",
    "wide": "cast('12345678901234567890123456789012345678' AS decimal(38,0)) - id",
    "day": "date_add(DATE'1969-12-30', cast(id AS int))",
    "moment": "timestamp_millis(id * 1500 - 1)",
    "many": "array(cast(id * 0.5 AS decimal(6,1)), NULL)",
    "pair": "named_struct('a', cast(id * 0.25 AS decimal(6,2)), 'b', if(id = 3, NULL, timestamp_millis(id)))",
    "map": "map(concat('k', id), cast(id AS decimal(9,3)))",
}


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_rows_of_each_type_are_the_same_bytes_in_a_plan_and_on_executors(
    spark_runtime: SparkRuntime, session: SparkSession, enabled: str
) -> None:
    columns = [f"if(id = 4, NULL, {text}) AS {name}" for name, text in TYPES.items()]
    json = {"schemas.enable": enabled}

    def data(session: SparkSession) -> DataFrame:
        return session.range(0, 5, 1, 1).selectExpr("id", *columns)

    in_plan = Lab(spark_runtime, session, json=json).plan(data)
    assert isinstance(in_plan.path, PlannedPath)
    # A transform of an author: rows go to executors, whose converters are these.
    by_row = Lab(spark_runtime, session, stage(Marked), json=json).plan(data)
    assert isinstance(by_row.path, RowPath)
    table = by_row.rows.toArrow().drop_columns([HASH])
    written = by_row.path.pipeline().run(SourceFrame(table, "t", None, {"a": 1}, {"b": 1}))

    values = [
        one.encode() if isinstance(one, str) else one for one in in_plan.rows.toArrow().column("value").to_pylist()
    ]
    assert not written.errors
    assert written.table.column("value").to_pylist() == values
    assert len(set(values)) == 5


def test_views_and_settings_of_the_workers_session_are_there(spark_runtime: SparkRuntime) -> None:
    base = spark_runtime.session(120)
    base.range(3).createOrReplaceTempView("bulk_numbers")
    own = run_session(base, 2)
    assert own.conf.get("spark.sql.caseSensitive") == "true"
    assert Lab(spark_runtime, own).plan(lambda session: session.table("bulk_numbers")).rows.count() == 3


def test_rows_behind_a_shuffle_are_put_in_an_order(lab: Lab) -> None:
    query = "SELECT id % 100 AS shop, count(*) AS orders FROM range(0, 10000, 1, 4) GROUP BY 1"
    found = lab.plan(lambda session: session.sql(query))
    numbers = [
        row[0] for row in found.rows.selectExpr(f"array({HASH}, cast(spark_partition_id() AS bigint)) AS a").collect()
    ]
    for partition in range(found.partitions):
        mine = [number for number, place in numbers if place == partition]
        assert mine == sorted(mine)


def test_the_topic_of_a_router_is_asked_for_once(spark_runtime: SparkRuntime, session: SparkSession) -> None:
    lab = Lab(spark_runtime, session, stage(RegexRouter, regex="(.*)", replacement="to-$1"))
    found = lab.plan(lambda session: session.range(2))
    assert isinstance(found.path, PlannedPath)
    assert found.rows.toArrow().column("topic").to_pylist() == ["to-t", "to-t"]

    def columns(more: str) -> Callable[[SparkSession], DataFrame]:
        return lambda session: session.range(2).selectExpr("id AS value", "concat('t', id) AS topic", *more.split("|"))

    assert isinstance(lab.plan(columns("NULL AS key"), topic=None).path, RowPath)
    headers = "array(named_struct('key', 'a', 'value', cast('b' AS binary))) AS headers"
    with pytest.raises(ConnectException, match="cannot ask a transform of topics"):
        lab.plan(columns(headers), topic=None)


def test_stateless_transforms_go_and_others_stay(spark_runtime: SparkRuntime, session: SparkSession) -> None:
    assert isinstance(
        Lab(spark_runtime, session, stage(Marked)).plan(lambda session: session.range(2)).path,
        RowPath,
    )
    with pytest.raises(ConnectException, match=r"the transform 'one' .* does not\s+say stateless = True"):
        Lab(spark_runtime, session, stage(Counted)).plan(lambda session: session.range(2))


@pytest.mark.parametrize("column", ["rand()", "uuid()", "current_timestamp()", "current_date()"])
def test_a_query_that_is_not_repeatable_is_refused(lab: Lab, column: str) -> None:
    with pytest.raises(ConnectException, match="The query of the run 'first' is not repeatable"):
        lab.plan(lambda session: session.range(5).selectExpr("id", f"{column} AS other"))


@pytest.mark.parametrize("column", ["rand(7)", "monotonically_increasing_id()", "spark_partition_id()"])
def test_what_is_the_same_each_time_is_repeatable(lab: Lab, column: str) -> None:
    assert lab.plan(lambda session: session.range(0, 5, 1, 3).selectExpr("id", f"{column} AS other")).partitions == 3


def test_a_limit_without_an_order_is_warned_of(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        lab.plan(lambda session: session.range(100).orderBy("id").limit(5))
        assert not caplog.records
        lab.plan(lambda session: session.range(100).limit(5))
    assert "takes some rows of all without an order" in caplog.text


def test_what_is_no_query_is_refused(lab: Lab) -> None:
    data: Any = lambda session: [1, 2]  # noqa: E731
    with pytest.raises(ConnectException, match="has returned a list; it has to return a Spark DataFrame"):
        lab.plan(data)


def test_executors_are_asked_for_penstock_and_classes(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    import pickle

    probe_executors(session, pickle.dumps(InstanceRecipe(Marked, {})), own_path(), 1)
    missing = b"cno_such_module\nThing\n."
    with pytest.raises(ConnectException, match=r"cannot make what is sent to them \(ModuleNotFoundError"):
        probe_executors(session, missing, own_path(), 1)
    monkeypatch.setattr("penstock.__version__", "9.9")
    with pytest.raises(ConnectException, match=r"have Penstock .*, and bulk work needs Penstock 9\.9"):
        probe_executors(session, pickle.dumps(1), own_path(), 1)


def test_shipped_work_runs_in_python_workers(session: SparkSession) -> None:
    import pickle

    rows = session.range(0, 4, 1, 2).mapInArrow(shipped(pickle.dumps(_twice), own_path()), "id bigint").collect()
    assert sorted(row[0] for row in rows) == [0, 2, 4, 6]


def _twice(batches: Any) -> Any:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pc.multiply(batch.column(0), 2)], ["id"])
