"""Sql against a real Spark: no function is looked over, nothing leads out of a record, too much costs its own."""

import contextlib
import json
import random
import time
from collections.abc import Iterator
from typing import cast

import pytest
from pyspark.errors import AnalysisException, ParseException
from testkit.doubles.chains import Chain, configured, record, sent, stages
from testkit.processes.worker_process import WorkerProcess

from penstock.data import STRING_SCHEMA, SchemaBuilder, Struct
from penstock.errors import ConfigException, DataException
from penstock.model import ConnectorType
from penstock.model.payloads import GivenRecord, PreviewLimits, PreviewRequest
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.spark.session import SparkRuntime
from penstock.plugins import Plugins
from penstock.settings.worker import WorkerSettings
from penstock.transforms.sql.checks import parse, read, refuse_parsed
from penstock.transforms.sql.functions import ALLOWED, PARSED, REFUSED
from penstock.transforms.sql.text import SqlRefused
from penstock.transforms.sql.transform import Sql
from penstock.worker.preview import previewer as preview
from penstock.worker.preview.previewer import Previewer

pytestmark = [pytest.mark.java, pytest.mark.slow]

NAMED = SchemaBuilder.struct().field("name", STRING_SCHEMA).build()
#: Java tries each way to part the letters, and there are as many as Fibonacci's number of their count.
SLOW_PATTERN = r"r'^(a|aa)+(b)\2$'"
SLOW_TEXT = "a" * 60 + "b"


def sql(**settings):
    return configured(Sql(), settings)


# ------------------------------------------------------------------ the fence
def test_every_function_of_the_installed_spark_is_allowed_or_refused_by_name(spark_runtime):
    shown = {row[0] for row in spark_runtime.session(180).sql("SHOW FUNCTIONS").collect()}
    named = {name for name in shown if name.replace("_", "").isalnum()}
    assert " ".join(sorted(shown - named)) == "! != % & * + - / < << <= <=> <> = == > >= >> >>> ^ | || ~"
    # This one is a word of the grammar, as the others that SHOW FUNCTIONS adds to the registered ones are signs.
    assert {name for name in named if name not in ALLOWED and name not in REFUSED} == {"case"}
    assert named >= ALLOWED


@pytest.mark.parametrize(
    "name", ["reflect", "java_method", "try_reflect", "input_file_name", "current_user", "version", "from_protobuf"]
)
def test_what_is_refused_is_there_in_spark(spark_runtime, name):
    assert spark_runtime.session(180).catalog.functionExists(name)
    with pytest.raises(ConfigException, match=f"the function {name} cannot be used"):
        sql(select=f"{name}(a) as x")


ATTACKS = [
    "(select first(value) from text.`/etc/hostname`)",
    "(table text.`/etc/hostname`)",
    "name in (select value from text.`/etc/hostname`)",
    "exists(from text.`/etc/hostname`)",
    "reflect('java.lang.System', 'getenv', 'HOME')",
    "'${env:HOME}'",
    "identifier('reflect')('java.lang.System', 'getenv', 'HOME')",
    "from_xml(name, 'b int', map('rowValidationXSDPath', '/etc/hostname'))",
]


@pytest.mark.parametrize("text", ATTACKS)
@pytest.mark.parametrize("setting", ["select", "where"])
def test_an_attack_is_refused_with_the_configuration_and_with_each_record(spark_runtime, setting, text):
    spark_runtime.session(180)
    text = f"{text} as x" if setting == "select" else f"{text} = 'x'"
    with pytest.raises(ConfigException) as caught:
        sql(**{setting: text})
    assert f"configuration {setting}" in str(caught.value)
    # As if it had come past the check, as with a session that was not there yet.
    transform = Sql()
    setattr(transform, f"_{setting}", text)
    batch = Chain(spark_runtime, stages(transform)).source([record({"name": "x"}), record({"name": "y"})])
    assert {error.exception_class for error in batch.errors.values()} == {
        "org.apache.kafka.connect.errors.DataException"
    }
    assert "no expression over the fields of one record" in str(batch.errors[0].message)
    assert sent(batch) == []


def test_a_file_is_no_table_in_the_session(spark_runtime, tmp_path):
    session = spark_runtime.session(180)
    (tmp_path / "file").write_text("line\n")
    query = f"SELECT * FROM text.`{tmp_path / 'file'}`"
    with pytest.raises(AnalysisException, match=r"UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY|TABLE_OR_VIEW_NOT_FOUND"):
        session.sql(query)
    own = session.newSession()
    own.conf.set("spark.sql.runSQLOnFiles", "true")
    assert own.sql(query).count() == session.read.text(str(tmp_path)).count() == 1
    with pytest.raises(AnalysisException):
        session.sql(query)


def test_functions_registered_by_name_and_variables_are_no_part_of_an_expression(spark_runtime):
    session = spark_runtime.session(180)
    session.udf.register("hostile_udf", lambda value: value)
    session.sql("DECLARE OR REPLACE VARIABLE hostile_secret STRING DEFAULT 'secret'")
    try:
        with pytest.raises(ConfigException, match="hostile_udf"):
            sql(select="hostile_udf(name) as x")
        for schema, value in ((None, {"name": "n"}), (NAMED, Struct(NAMED).put("name", "n"))):
            for text in ("hostile_secret as x", "session.hostile_secret as x", "system.session.hostile_secret as x"):
                batch = Chain(spark_runtime, stages(sql(select=text))).source([record(value, schema=schema)])
                assert not any(b"secret" in one for one in sent(batch))
                assert schema is None or "no field" in str(batch.errors[0].message)
    finally:
        session.sql("DROP TEMPORARY VARIABLE hostile_secret")
        session.sql("DROP TEMPORARY FUNCTION hostile_udf")


@pytest.mark.parametrize("name", ["current_user", "user", "session_user", "CURRENT_USER", "current_catalog"])
def test_the_account_of_the_worker_is_no_field(spark_runtime, name):
    value = Struct(NAMED).put("name", "n")
    batch = Chain(spark_runtime, stages(sql(select=f"{name} as x"))).source([record(value, schema=NAMED)])
    assert sent(batch) == []
    assert 0 in batch.errors


WORDS = """
select from table values with map reduce transform where group by as and or not in is like any all between case when
then else end distinct a b x exists array struct interval day 1 'x' `q` text.`/etc/hostname` ( ( ( ) ) ) [ ] , . : :: *
+ - = => -> < | || |> ; ? union lateral over identifier session system reflect upper user null date timestamp extract
trim substring position overlay cast using /* */ -- for placing both escape collate except
"""


def test_whatever_the_fence_lets_through_is_an_expression_for_spark(spark_runtime):
    session = spark_runtime.session(180)
    chance, passed = random.Random(4), 0
    # Always the same ones, however long that takes.
    while passed < 100:
        words = chance.choices(WORDS.split(), k=chance.randint(2, 10))
        text = " ".join(words) if chance.random() < 0.5 else f"({' '.join(words)})"
        with contextlib.suppress(SqlRefused):
            read(text)
            # The tree of Spark has nothing to add to what the tokens have let through.
            passed += is_expression(session, text)


def is_expression(session, text):
    """False if Spark cannot parse it."""
    try:
        refuse_parsed(session, text)
    except ParseException:
        return False
    except SqlRefused as refused:
        pytest.fail(f"{text}: {refused}")
    return True


@pytest.mark.parametrize(
    "text", ["(select 1)", "exists(from t)", "count(a) over ()", ":a", "system.builtin.reflect(a)"]
)
def test_the_tree_of_spark_is_refused_too(spark_runtime, text):
    session = spark_runtime.session(180)
    assert parse(session, text) is not None
    with pytest.raises(SqlRefused):
        refuse_parsed(session, text)
    assert PARSED


# ------------------------------------------------------------------ too much
def test_the_record_that_runs_over_its_time_is_found_and_the_others_go_on(spark_runtime):
    quick = Chain(spark_runtime, stages(sql(select="upper(name) as x")))
    slow = sql(select=f"name, name rlike {SLOW_PATTERN} as x, 10 div length(name) as y")
    # More than a session needs for its first plan on a busy machine.
    slow.limit_s = 5.0
    chain = Chain(spark_runtime, stages(slow))
    # As a task has it, which keeps away from the worker's session for a while.
    task, names = SourcePipeline(spark_runtime, chain._spec()), [f"n{number}" for number in range(6)]
    names[4] = SLOW_TEXT
    records = [record(Struct(NAMED).put("name", name), schema=NAMED) for name in names]
    spark_runtime.session(180)
    batch = task.run(records)
    assert list(batch.errors) == [4]
    assert "had nothing else to do: it took longer than 5 s. Look for expressions" in str(batch.errors[4].message)
    assert batch.errors[4].stage == "TRANSFORMATION"
    assert [json.loads(one)["name"] for one in sent(batch)] == [name for name in names if name != SLOW_TEXT]
    # The next of its batches cost the session of the others nothing, and errors of values are those of their records.
    generation = spark_runtime.session(180) and spark_runtime.generation
    assert len(sent(quick.source(records[:2]))) == 2
    empty = record(Struct(NAMED).put("name", ""), schema=NAMED)
    batch = task.run([*records[:2], empty, *records[:3]])
    assert {row: error.exception_class for row, error in batch.errors.items()} == {2: DataException.java_name}
    assert "DIVIDE_BY_ZERO" in str(batch.errors[2].message)
    assert "Traceback" not in str(batch.errors[2].message)
    assert len(sent(batch)) == 5
    assert spark_runtime.generation == generation


class Unused:
    """A session that no preview may touch."""

    generation = 0
    parallelism = 1


@pytest.fixture(scope="module")
def previewer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Previewer]:
    json_converter = "org.apache.kafka.connect.json.JsonConverter"
    raw = {
        "bootstrap.servers": "localhost:1",
        **{f"{side}.converter": json_converter for side in ("key", "value")},
        **{f"{side}.converter.schemas.enable": "false" for side in ("key", "value")},
        "offset.storage.file.filename": str(tmp_path_factory.mktemp("preview") / "offsets"),
    }
    one = Previewer(WorkerSettings.parse(raw), Plugins.discover(()), cast("SparkRuntime", Unused()))
    yield one
    one.close()


def previewed(previewer, kind=ConnectorType.SINK, seconds=60.0, **settings):
    config = {
        "name": "p",
        "connector.class": f"FileStream{kind.value.title()}",
        "topics": "t",
        "topic": "t",
        "file": "f",
    }
    config |= {"transforms": "s", "transforms.s.type": "Sql"} | {f"transforms.s.{k}": v for k, v in settings.items()}
    given = [GivenRecord("t", value={"n": 40, "name": SLOW_TEXT}), GivenRecord("t", value={"n": 1, "name": "b"})]
    return previewer.preview(PreviewRequest(kind, config, given, PreviewLimits(seconds=seconds)))["records"]


@pytest.mark.parametrize("kind", [ConnectorType.SINK, ConnectorType.SOURCE])
def test_a_preview_shows_what_sql_makes_of_records_without_the_session_of_the_worker(previewer, kind):
    first, second = previewed(previewer, kind, select="n::int + 1 as m, upper(name::string) as name", where="n > 1")
    assert first["steps"][0]["after"]["value"] == {"m": 41, "name": SLOW_TEXT.upper()}
    assert second["steps"] == [{"transform": "s", "before": second["steps"][0]["before"], "dropped": True}]


@pytest.mark.parametrize(
    ("seconds", "text", "told"),
    [
        (3.0, f"name rlike {SLOW_PATTERN} as x", "took longer than 3 s"),
        (60.0, "repeat(name, n::int * 20000) as x", "more of these records than a preview can show"),
    ],
)
def test_a_preview_that_is_too_much_says_so_and_the_next_one_goes_on(previewer, seconds, text, told, monkeypatch):
    # In a session that is warm; what is refused then ends as quickly as it can.
    assert "error" not in previewed(previewer, select="n::int as x")[0]
    monkeypatch.setattr(preview, "_PLANS_S", 0.0)
    began = time.monotonic()
    for one in previewed(previewer, seconds=seconds, select=text):
        assert told in one["error"]["message"]
        assert one["error"]["stage"] == "TRANSFORMATION"
    assert time.monotonic() - began < 90
    monkeypatch.undo()
    assert "error" not in previewed(previewer, select="n::int as x")[0]


def test_a_preview_finds_its_process_gone_and_starts_another(previewer):
    assert "error" not in previewed(previewer, select="n::int as x")[0]
    process = previewer._session._process
    process.kill()
    process.wait()
    assert previewed(previewer, select="n::int as x")[0]["output"]["value"] == {"x": 40}


@pytest.mark.broker
def test_a_preview_that_takes_all_memory_leaves_the_worker_and_its_session_alone(shared_worker: WorkerProcess) -> None:
    config = {"connector.class": "FileStreamSink", "topics": "t", "file": "f"}
    config |= {"value.converter": "org.apache.kafka.connect.json.JsonConverter"}
    config |= {"value.converter.schemas.enable": "false", "transforms": "s", "transforms.s.type": "Sql"}
    sessions = shared_worker.text().count("Spark session")

    def ask(text: str) -> tuple[int, object]:
        body = {"config": config | {"transforms.s.select": text}, "records": [{"topic": "t", "value": {"n": 2}}]}
        return shared_worker.ask("POST", "/connector-plugins/FileStreamSink/preview", body, timeout_s=100)

    status, found = ask("size(sequence(1, n::int * 1000000000)) as x")
    assert status == 200
    assert "of the preview" in json.dumps(found)
    assert ask("(select first(value) from text.`/etc/hostname`) as x")[0] == 400
    assert shared_worker.text().count("Spark session") == sessions
