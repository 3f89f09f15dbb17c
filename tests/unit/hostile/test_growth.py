"""Work grows in step with its input: each kind of input is doubled, and takes at most three times as long."""

from __future__ import annotations

import contextlib
import gc
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

import pytest
from testkit.doubles.control_plane import SINK as PROBE_SINK
from testkit.waiting import await_true
from tests.unit.hostile.growth import require_in_step, seconds
from tests.unit.rest.api_client import Api, serving

from penstock.api import SourceConnector
from penstock.config import ConfigDef, ConfigTransformer, ConfigType, EnvVarConfigProvider, parse_properties
from penstock.config.java_pattern import compile_java
from penstock.config.properties import NamesByPrefix
from penstock.config.suggestions import LONGEST, MOST_CANDIDATES, candidates, nearest
from penstock.herder.offset_changes import sink_offsets, source_offsets
from penstock.kafka.settings.table import ClientKind, java_name_of
from penstock.model.cluster_config import ClusterConfig, ConfigRecord, fold
from penstock.plugins import PluginKind, Plugins
from penstock.rest.bodies import config_map, offsets_request, parse_json, timestamp_ms
from penstock.validation.settings import closest
from penstock.validation.validator import ConnectorValidator

VALIDATOR = ConnectorValidator(Plugins())
SOURCE = {"name": "a", "connector.class": "FileStreamSource", "topic": "t", "file": "/tmp/x"}
SINK = {"name": "a", "connector.class": "FileStreamSink", "topics": "t", "file": "/tmp/x"}
REGEX = {key: value for key, value in SINK.items() if key != "topics"}
X = "org.apache.kafka.connect.transforms."
RULES = {"topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "1"}


@pytest.fixture(autouse=True, scope="module")
def quick_collector() -> None:
    """Each measure collects garbage first, and need not walk through all that tests before have left."""
    gc.collect()
    gc.freeze()


def check(config: dict[str, str]) -> None:
    """What validation and creation look at, and the answer."""
    json.dumps(VALIDATOR.infos(config, config).to_json())
    VALIDATOR(config, config)


def names(count: int) -> str:
    return ",".join(f"n{number}" for number in range(count))


def transform(cls: str, **settings: str) -> dict[str, str]:
    own = {f"transforms.x.{name.replace('_', '.')}": value for name, value in settings.items()}
    return {**SOURCE, "transforms": "x", "transforms.x.type": X + cls, **own}


def many(prefix: str, count: int, value: str = "1") -> dict[str, str]:
    return {f"{prefix}{number}": value for number in range(count)}


def aliases(setting: str, count: int, cls: str, **own: str) -> dict[str, str]:
    found = {setting: names(count)}
    for number in range(count):
        found[f"{setting}.n{number}.type"] = cls
        found |= {f"{setting}.n{number}.{name}": value for name, value in own.items()}
    return found


#: By name: a size, and a configuration of that size.
CONFIGURATIONS: dict[str, tuple[int, Callable[[int], dict[str, str]]]] = {
    "a class": (50_000, lambda n: {**SOURCE, "connector.class": "x" * n}),
    "a class with dots": (20_000, lambda n: {**SOURCE, "connector.class": "x." * n + "Y"}),
    "a class with a colon": (20_000, lambda n: {**SOURCE, "connector.class": "x:" + "Y." * n}),
    "the class of a transform": (50_000, lambda n: {**SOURCE, **aliases("transforms", 1, "x" * n)}),
    "the class of a transform with dots": (20_000, lambda n: {**SOURCE, **aliases("transforms", 1, "x." * n + "Y")}),
    "the class of a predicate": (50_000, lambda n: {**SOURCE, **aliases("predicates", 1, "x" * n)}),
    "the class of a converter": (50_000, lambda n: {**SOURCE, "value.converter": "x" * n}),
    "the class of a header converter": (50_000, lambda n: {**SOURCE, "header.converter": "x.y" * n}),
    "a setting's name": (50_000, lambda n: {**SOURCE, "x" * n: "1"}),
    "a setting's name with dots": (50_000, lambda n: {**SOURCE, "x." * n: "1"}),
    "a producer's setting": (50_000, lambda n: {**SOURCE, f"producer.override.{'x' * n}": "1"}),
    "a producer's value": (50_000, lambda n: {**SOURCE, "producer.override.acks": "x" * n}),
    "a transform's setting": (50_000, lambda n: transform("Filter", **{"x" * n: "1"})),
    "an alias": (50_000, lambda n: {**SOURCE, "transforms": "a" * n, f"transforms.{'b' * n}.type": "1"}),
    "an alias with dots": (5_000, lambda n: {**SOURCE, "transforms": "a." * n, f"transforms.{'a.' * n}b": "1"}),
    "a rule for topics": (50_000, lambda n: {**SOURCE, **RULES, f"topic.creation.{'y' * n}": "1"}),
    "a converter's setting": (
        50_000,
        lambda n: {**SOURCE, "value.converter": "Json", f"value.converter.{'y' * n}": "1"},
    ),
    "unknown settings": (2_000, lambda n: {**SOURCE, **many("foo.bar", n)}),
    "settings that are nearly known": (2_000, lambda n: {**SOURCE, **many("tasks.mux", n)}),
    "unknown settings of a producer": (2_000, lambda n: {**SOURCE, **many("producer.override.foo", n)}),
    "unknown settings of a transform": (2_000, lambda n: transform("Filter", **many("foo", n))),
    "settings of transforms that are not listed": (
        2_000,
        lambda n: {**SOURCE, "transforms": "", **many("transforms.y.", n)},
    ),
    "nulls of a sink": (2_000, lambda n: {**SINK, **many("foo", n, "")}),
    "transforms": (150, lambda n: {**SOURCE, **aliases("transforms", n, f"{X}HoistField$Value", field="f")}),
    "transforms without a class": (1_000, lambda n: {**SOURCE, "transforms": names(n)}),
    "transforms whose class is not there": (400, lambda n: {**SOURCE, **aliases("transforms", n, "Nope")}),
    "transforms with a class each": (
        40,
        lambda n: {**SOURCE, "transforms": names(n), **{f"transforms.n{i}.type": f"a{i}.B" for i in range(n)}},
    ),
    "predicates": (150, lambda n: {**SOURCE, **aliases("predicates", n, f"{X}predicates.RecordIsTombstone")}),
    "one alias many times": (20_000, lambda n: {**SOURCE, "transforms": ",".join(["x"] * n)}),
    "topics": (20_000, lambda n: {**SINK, "topics": names(n)}),
    "topics and one again": (20_000, lambda n: {**SINK, "topics": f"{names(n)},n1"}),
    "a topic": (50_000, lambda n: {**SINK, "topics": "x" * n}),
    "blanks in a list": (20_000, lambda n: {**SINK, "topics": f"x{' ' * n}y"}),
    "tabs in a list": (20_000, lambda n: {**SINK, "topics": "\t " * n}),
    "commas": (20_000, lambda n: {**SINK, "topics": "," * n}),
    "a pattern": (10_000, lambda n: {**REGEX, "topics.regex": "x" * n}),
    "ways of a pattern": (3_000, lambda n: {**REGEX, "topics.regex": "|".join(["ab"] * n)}),
    "brackets of a pattern": (20_000, lambda n: {**REGEX, "topics.regex": "(" * n + ")" * n}),
    "groups of a pattern": (1_000, lambda n: {**REGEX, "topics.regex": "".join(f"(?<n{i}>a)" for i in range(n))}),
    "repetitions of a pattern": (3_000, lambda n: {**REGEX, "topics.regex": "a{1000}" * n}),
    "references of a pattern": (1_000, lambda n: {**REGEX, "topics.regex": r"(a)\1" * n}),
    "a router's pattern": (3_000, lambda n: transform("RegexRouter", regex="(a)|" * n, replacement="$1" * n)),
    "fields to cast": (10_000, lambda n: transform("Cast$Value", spec=",".join(f"n{i}:int8" for i in range(n)))),
    "fields to rename": (
        10_000,
        lambda n: transform("ReplaceField$Value", renames=",".join(f"n{i}:m{i}" for i in range(n))),
    ),
    "fields to keep": (10_000, lambda n: transform("ReplaceField$Value", include=names(n), exclude=names(n))),
    "fields to mask": (10_000, lambda n: transform("MaskField$Value", fields=names(n), replacement="9" * n)),
    "headers to drop": (10_000, lambda n: transform("DropHeaders", headers=names(n))),
    "headers to make": (
        10_000,
        lambda n: transform("HeaderFrom$Value", fields=names(n), headers=names(n), operation="move"),
    ),
    "fields of a key": (10_000, lambda n: transform("ValueToKey", fields=names(n))),
    "a header's value": (20_000, lambda n: transform("InsertHeader", header="a" * n, value_literal="[" * n)),
    "a field's path": (20_000, lambda n: transform("ExtractField$Value", field="`a`." * n, field_syntax_version="V2")),
    "a field's path that is wrong": (
        20_000,
        lambda n: transform("ExtractField$Value", field="`a" * n, field_syntax_version="V2"),
    ),
    "a format": (
        3_000,
        lambda n: transform("TimestampConverter$Value", field="a", format="y-'a'" * n, target_type="string"),
    ),
    "a topic's format": (
        3_000,
        lambda n: transform("TimestampRouter", topic_format="${topic}" * n, timestamp_format="y'a'" * n),
    ),
    "a number": (50_000, lambda n: {**SOURCE, "tasks.max": "1" * n, "errors.retry.timeout": "9" * n}),
    "a boolean": (50_000, lambda n: {**SOURCE, "errors.log.enable": " " * n + "t"}),
    "a name": (50_000, lambda n: {**SOURCE, "name": "x" * n}),
    "a name of control characters": (50_000, lambda n: {**SOURCE, "name": "\x01" * n}),
    "a path": (50_000, lambda n: {**SOURCE, "file": "../" * n}),
    "groups of topics": (
        300,
        lambda n: {
            **SOURCE,
            **RULES,
            "topic.creation.groups": names(n),
            **{f"topic.creation.n{i}.include": "x" for i in range(n)},
        },
    ),
    "rules of groups that are not known": (
        200,
        lambda n: {
            **SOURCE,
            **RULES,
            "topic.creation.groups": names(n),
            **{f"topic.creation.n{i}.inclide": "x" for i in range(n)},
        },
    ),
    "patterns of a group": (
        700,
        lambda n: {**SOURCE, **RULES, "topic.creation.groups": "a", "topic.creation.a.include": names(n)},
    ),
    "a dead letter queue": (50_000, lambda n: {**SINK, "errors.deadletterqueue.topic.name": "x" * n}),
}


@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_a_check_takes_time_in_step_with_the_configuration(kind: str) -> None:
    size, make = CONFIGURATIONS[kind]
    require_in_step(make, check, size)


def test_the_settings_of_a_connector_may_be_many() -> None:
    def defined(count: int) -> ConfigDef:
        definition = ConfigDef()
        for number in range(count):
            more = (f"n{number + 1}",) if number % 10 and number + 1 < count else ()
            definition.define(f"n{number}", ConfigType.INT, default=1, group=f"g{number}", dependents=more)
        return definition

    require_in_step(defined, lambda one: (one.validate({}), one.parse({}), one.sorted_keys()), 2_000)


def resolve(config: Mapping[str, str]) -> dict[str, str]:
    return ConfigTransformer({"env": EnvVarConfigProvider({"A": "b"})}).resolve(config).data


def offsets(of_partition: str, of_offset: str, count: int, topic: str = "t") -> Any:
    rows = [{"partition": {"kafka_topic": topic, of_partition: i}, "offset": {of_offset: i}} for i in range(count)]
    return offsets_request({"offsets": rows}, dry_run=False)


def of_source(body: Any) -> object:
    return source_offsets(body.entries)


def of_sink(body: Any) -> object:
    return sink_offsets(body.entries)


TEXTS: dict[str, tuple[int, Callable[[int], Any], Callable[[Any], object]]] = {
    "a placeholder that does not end": (20_000, lambda n: "${" * n, lambda text: resolve({"a": text})),
    "placeholders without a key": (20_000, lambda n: "${env:" * n, lambda text: resolve({"a": text})),
    "colons of a placeholder": (20_000, lambda n: "${" + ":" * n + "}", lambda text: resolve({"a": text})),
    "placeholders": (2_000, lambda n: "${env:A}${env:B}${x:y:z}" * n, lambda text: resolve({"a": text})),
    "settings with placeholders": (2_000, lambda n: many("a", n, "${env:A}"), resolve),
    "missing values": (2_000, lambda n: {f"a{i}": f"${{env:M{i}}}" for i in range(n)}, resolve),
    "lines of a file": (20_000, lambda n: "a=b\n" * n, parse_properties),
    "a line that goes on": (50_000, lambda n: "a=" + "b\\\n" * n, parse_properties),
    "backslashes": (50_000, lambda n: "\\" * n, parse_properties),
    "blanks of a line": (50_000, lambda n: "a" + " " * n + "b", parse_properties),
    "a pattern of sets": (3_000, lambda n: "[a-z&&[^b]]" * n, compile_java),
    "a pattern's quotes": (10_000, lambda n: "\\Q" * n, compile_java),
    "a pattern's comments": (10_000, lambda n: "(?#" * n, compile_java),
    "the offsets of a source": (5_000, lambda n: offsets("file", "position", n), of_source),
    "the offsets of a sink": (5_000, lambda n: offsets("kafka_partition", "kafka_offset", n), of_sink),
    "an offset's topic": (50_000, lambda n: offsets("kafka_partition", "kafka_offset", 1, "t" * n), of_sink),
    "a time": (50_000, lambda n: "1" * n, timestamp_ms),
    "a time with a fraction": (50_000, lambda n: "2020-01-01T00:00:00." + "1" * n, timestamp_ms),
    "a number in a body": (50_000, lambda n: b'{"a":' + b"1" * n + b"}", parse_json),
    "depth of a body": (50_000, lambda n: b'{"a":' * n, parse_json),
    "depth of a list": (50_000, lambda n: b"[" * n, parse_json),
    "names in a body": (10_000, lambda n: json.dumps(many("a", n)).encode(), lambda body: config_map(parse_json(body))),
}  # fmt: skip


@pytest.mark.parametrize("kind", TEXTS)
def test_reading_takes_time_in_step_with_the_text(kind: str) -> None:
    size, make, run = TEXTS[kind]
    require_in_step(make, run, size)


@pytest.fixture(scope="module")
def api() -> Any:
    with serving() as found:
        found.setup.validator.strict = True
        yield found


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("path", 4_000),
        ("name", 4_000),
        ("query", 4_000),
        ("headers", 150),
        ("accept", 4_000),
        ("records", 2_000),
        ("body", 1_000_000),
    ],
)
def test_answering_takes_time_in_step_with_the_request(kind: str, size: int, api: Api) -> None:
    def ask(n: int) -> None:
        match kind:
            case "path":
                api.http.get("/connectors/a" + "/b" * (n // 2))
            case "name":
                api.http.get(f"/connectors/{'%2F' * (n // 3)}")
            case "query":
                api.http.get("/connectors?" + "&expand=info" * (n // 12))
            case "headers":
                api.http.get("/connectors", headers=[(f"h{i}", "x") for i in range(n)])
            case "accept":
                api.http.get("/connectors", headers={"accept": "," * n})
            case "records":
                rows = [{"topic": "t", "value": i} for i in range(n)]
                api.call("POST", f"/connector-plugins/{PROBE_SINK}/preview", {"config": {}, "records": rows})
            case "body":
                api.http.post("/connectors", content=b" " * n, headers={"content-type": "application/json"})

    require_in_step(lambda n: n, ask, size, time.process_time)


# ------------------------------------------------------------------ the config topic
def entry(key: str, /, **value: Any) -> tuple[str, bytes | None]:
    return key, json.dumps(value).encode() if value else None


def of_connectors(count: int) -> Iterator[tuple[str, bytes | None]]:
    for number in range(count):
        yield entry(f"connector-c{number}", properties=SOURCE)
        yield entry(f"task-c{number}-0", properties=SOURCE)
        yield entry(f"commit-c{number}", tasks=1)
        yield entry(f"target-state-c{number}", state="PAUSED")


def of_tasks(count: int) -> Iterator[tuple[str, bytes | None]]:
    yield entry("connector-c", properties=SOURCE)
    yield from (entry(f"task-c-{number}", properties={"n": "1"}) for number in range(count))
    yield entry("commit-c", tasks=count)
    yield from (entry(f"task-c-{number}") for number in range(count))


#: By what there is much of: a size, and the records of the config topic, whoever has written them.
RECORDS: dict[str, tuple[int, Callable[[int], Iterable[tuple[str, bytes | None]]]]] = {
    "connectors": (5_000, of_connectors),
    "connectors that come and go": (
        5_000,
        lambda n: (e for i in range(n) for e in ((f"connector-{i}", b"{}"), (f"connector-{i}", None))),
    ),
    "tasks of one connector": (10_000, of_tasks),
    "tasks of nothing": (10_000, lambda n: (entry(f"task-c-{i}", properties={"n": "1"}) for i in range(n))),
    "numbers of tasks far apart": (
        10_000,
        lambda n: (entry(f"task-c-{i * 50_000 % 999_999_937}", properties={}) for i in range(n)),
    ),
    "commits": (10_000, lambda n: [entry("connector-c", properties=SOURCE), *[entry("commit-c", tasks=10**12)] * n]),
    "changes of one connector": (10_000, lambda n: [entry("connector-c", properties=SOURCE, secrets=["a"])] * n),
    "secrets of one connector": (
        1_000,
        lambda n: [entry("connector-c", properties={}, secrets=[f"s{i}"]) for i in range(n)],
    ),
    "settings of one connector": (50_000, lambda n: [entry("connector-c", properties=many("a", n))]),
    "states": (10_000, lambda n: (entry(f"target-state-{i}", state="STOPPED") for i in range(n))),
    "restarts": (10_000, lambda n: [entry("restart-connector-c", **{"include-tasks": True})] * n),
    "fences": (10_000, lambda n: (entry(f"tasks-fencing-{i}", **{"task-count": i}) for i in range(n))),
    "session keys": (
        10_000,
        lambda n: [entry("session-key", key="AAAA", algorithm="x", **{"creation-timestamp": 1})] * n,
    ),
    "loggers": (10_000, lambda n: (entry(f"logger-cluster-{i}", level="INFO") for i in range(n))),
    "records of no kind": (10_000, lambda n: [("x" * 1_000, b"x" * 1_000)] * n),
    "a long key": (500_000, lambda n: [("task-" + "-9" * n, b"{}"), ("connector-" + "x" * n, b"{}")]),
    "a long value": (
        500_000,
        lambda n: [("connector-c", b" " * n), ("connector-c", b"[" * n), ("commit-c", b'{"tasks":' + b"9" * n)],
    ),
}


@pytest.mark.parametrize("kind", RECORDS)
def test_the_config_topic_is_read_in_step_with_its_records(kind: str) -> None:
    size, make = RECORDS[kind]

    def records(count: int) -> list[ConfigRecord]:
        return [ConfigRecord(at, key, value) for at, (key, value) in enumerate(make(count))]

    require_in_step(records, lambda given: fold(ClusterConfig(), given), size)
    # One at a time, as they come while the worker runs: nothing is lost between them.
    few = records(20)
    config = ClusterConfig()
    for one in few:
        config, _ = fold(config, [one])
    assert config == fold(ClusterConfig(), few)[0]


# ------------------------------------------------------------------ suggestions
def test_a_long_name_is_compared_with_nothing() -> None:
    long, known = "x" * (LONGEST + 1), ["x" * LONGEST, "y"]
    assert candidates(long, known) == []
    assert nearest(long, known, 0.5) is None
    assert closest(long, [long]) is None
    assert java_name_of(ClientKind.CONSUMER, long) is None
    text = Plugins().choice(PluginKind.TRANSFORMATION, long)
    assert "Did you mean" not in text
    assert text.startswith("Available transformations are: ")


def test_a_name_is_compared_with_so_many_others() -> None:
    known = [f"n{number}" for number in range(MOST_CANDIDATES + 1)]
    assert candidates("n", known) == known[:MOST_CANDIDATES]


def test_a_name_within_the_limits_still_gets_its_suggestion() -> None:
    near = "compression.typ" + "e" * 1
    assert java_name_of(ClientKind.PRODUCER, near.replace("ss", "s")) == "compression.type"
    assert "Did you mean FileStreamSource?" in Plugins().choice(PluginKind.SOURCE, "FileStreemSource")


def test_names_below_a_prefix_keep_their_order() -> None:
    found = NamesByPrefix(["t.b.z", "t.a.y", "t.ab.x", "t.a.x", "t.a."])
    assert found.below("t.a.") == ["t.a.y", "t.a.x", "t.a."]
    assert found.below("u") == []


@pytest.mark.parametrize("length", [10_000, 100_000])
def test_a_long_class_name_is_refused_at_once(length: int, api: Api) -> None:
    config = {**SINK, "transforms": "t", "transforms.t.type": "x" * length}
    took = seconds(lambda given: api.call("PUT", "/connector-plugins/FileStreamSink/config/validate", given), config)
    assert took < 2
    status, answer = api.call("PUT", "/connector-plugins/FileStreamSink/config/validate", config)
    assert status == 200
    assert answer["error_count"] >= 1


# ------------------------------------------------------------------ questions that took too long
LOOPING = threading.Event()


class Endless(SourceConnector):
    """A connector whose check never ends, and takes what is raised in it for a verdict."""

    def validate(self, connector_configs: Mapping[str, str]) -> Any:
        LOOPING.set()
        for _ in range(3):
            with contextlib.suppress(BaseException):
                while True:
                    time.sleep(0.001)

    def config(self) -> ConfigDef:
        return ConfigDef()

    def start(self, props: Mapping[str, str]) -> None: ...

    def task_class(self) -> type:
        raise AssertionError

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return []

    def stop(self) -> None: ...

    def version(self) -> str:
        return "1"


@pytest.fixture
def endless() -> Any:
    """The class by a name of its own, which any import finds."""
    module = ModuleType("endless_plugin")
    module.Endless = Endless  # type: ignore[attr-defined]
    sys.modules["endless_plugin"] = module
    yield "endless_plugin.Endless"
    del sys.modules["endless_plugin"]


@pytest.mark.parametrize("asked", ["validate", "preview"])
def test_the_work_for_a_question_ends_with_its_answer(asked: str, endless: str) -> None:
    LOOPING.clear()
    config = {"name": "a", "connector.class": endless}
    # What is looked for once is found before.
    Plugins().resolve_connector(endless)
    with serving(timeout_s=1.0) as api:
        api.setup.validator.strict = True
        if asked == "validate":
            status, answer = api.call("PUT", "/connector-plugins/Endless/config/validate", config)
            thread = "validate-a"
        else:
            status, answer = api.call("POST", "/connector-plugins/Endless/preview", {"config": config})
            thread = "preview-check"
        assert LOOPING.is_set(), answer
        assert (status, answer["message"].rpartition(". ")[2]) == (500, "What was begun for it is ended")
        await_true(lambda: all(one.name != thread for one in threading.enumerate()), lambda: "it goes on")
        assert api.call("GET", "/connectors") == (200, [])
