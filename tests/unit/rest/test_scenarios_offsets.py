"""Requests that read, alter and reset offsets (KIP-875); what they do is in ``tests/unit/herder``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from testkit.connectors.probes import BOARD
from testkit.doubles.control_plane import SINK, SOURCE
from tests.unit.rest.api_client import Api, serving

from penstock.api import TopicPartition
from penstock.errors import ConnectException, RetriableException
from penstock.stores.offsets import OffsetWriter

O = "/connectors/a/offsets"  # noqa: E741
ALTERED = {"message": "The offsets for this connector have been altered successfully"}
RESET = {"message": "The offsets for this connector have been reset successfully"}


@pytest.fixture
def api() -> Iterator[Api]:
    with serving() as started:
        yield started


def source(api: Api, state: str = "STOPPED", **config: str) -> None:
    """Creates a source with two offsets."""
    body = {"name": "a", "config": {"connector.class": SOURCE, **config}, "initial_state": state}
    assert api.call("POST", "/connectors", body)[0] == 201
    writer = OffsetWriter(api.setup.store, "a")
    writer.put({"file": "f"}, {"position": 8})
    writer.put({"file": "g"}, {"position": 9})
    writer.flush()


def sink(api: Api, state: str = "STOPPED", **config: str) -> None:
    """Creates a sink with a group."""
    body = {"name": "a", "config": {"connector.class": SINK, "topics": "t", **config}, "initial_state": state}
    assert api.call("POST", "/connectors", body)[0] == 201
    group = config.get("consumer.override.group.id", "connect-a")
    api.setup.groups.groups[group] = {TopicPartition("t", 0): 5, TopicPartition("t", 1): 7}


def at(partition: object, offset: object, topic: str = "t") -> dict[str, object]:
    """An entry of a sink's offsets."""
    return {
        "partition": {"kafka_topic": topic, "kafka_partition": partition},
        "offset": None if offset is None else {"kafka_offset": offset},
    }


def test_offsets_of_a_source_are_read_changed_and_reset(api: Api) -> None:
    source(api)
    both = [
        {"partition": {"file": "f"}, "offset": {"position": 8}},
        {"partition": {"file": "g"}, "offset": {"position": 9}},
    ]
    assert api.call("GET", O) == (200, {"offsets": both})
    change = {"offsets": [{"partition": {"file": "f"}, "offset": {"position": 4}}]}
    assert api.call("PATCH", O, change) == (200, ALTERED)
    assert api.call("GET", O)[1]["offsets"] == [change["offsets"][0], both[1]]
    assert BOARD.altered == [("a", {frozenset({("file", "f")}): {"position": 4}})]
    removal = {"offsets": [{"partition": {"file": "g"}, "offset": None}]}
    assert api.call("PATCH", O, removal) == (200, ALTERED)
    assert api.call("GET", O)[1]["offsets"] == change["offsets"]
    assert api.call("DELETE", O) == (200, RESET)
    assert BOARD.altered[-1] == ("a", {frozenset({("file", "f")}): None})
    assert api.call("GET", O) == (200, {"offsets": []})
    assert api.call("DELETE", O) == (200, RESET)
    # Rows that executors have written of a run are to be read again, too, also of one that has no offset yet.
    assert api.setup.forgotten == [("a", [{"file": "f"}]), ("a", [{"file": "g"}]), ("a", None), ("a", None)]


def test_offsets_of_a_sink_are_those_of_its_group(api: Api) -> None:
    sink(api)
    assert api.call("GET", O) == (200, {"offsets": [at(0, 5), at(1, 7)]})
    assert api.call("PATCH", O, {"offsets": [at("0", "2")]}) == (200, ALTERED)
    assert BOARD.altered == [("a", {TopicPartition("t", 0): 2})]
    assert api.call("PATCH", O, {"offsets": [at(1, None)]}) == (200, ALTERED)
    assert api.call("GET", O) == (200, {"offsets": [at(0, 2)]})
    assert api.call("DELETE", O) == (200, RESET)
    assert BOARD.altered[-1] == ("a", {TopicPartition("t", 0): None})
    assert api.setup.groups.groups == {}
    assert api.call("GET", O) == (200, {"offsets": []})


@pytest.mark.parametrize("state", ["RUNNING", "PAUSED"])
def test_offsets_of_a_connector_that_is_not_stopped_stay(api: Api, state: str) -> None:
    source(api, state)
    words = (
        "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the "
        "specified connector by issuing a 'PUT' request to the '/connectors/a/stop' endpoint"
    )
    assert api.error("PATCH", O, {"offsets": [{"partition": {}, "offset": None}]}) == (400, words)
    assert api.error("DELETE", O) == (400, words)
    assert api.call("GET", O)[0] == 200
    for method in ("GET", "DELETE"):
        assert api.error(method, "/connectors/x/offsets") == (404, "Connector x not found")
    assert api.error("PATCH", "/connectors/x/offsets", {"offsets": [{"partition": {}}]})[0] == 404
    assert BOARD.altered == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "Partitions / offsets need to be provided for an alter offsets request"),
        ({"offsets": None}, "Partitions / offsets need to be provided for an alter offsets request"),
        ({"offsets": []}, "Partitions / offsets need to be provided for an alter offsets request"),
        ({"offsets": "x"}, "must be a JSON array"),
        ({"offsets": ["x"]}, "must be a JSON object"),
        ({"offsets": [{"partition": 5}]}, "The partition of an entry must be"),
        ({"offsets": [{"partition": {}, "offset": []}]}, "The offset of an entry must be"),
        ({"offsets": [{"partition": {}, "ofset": {}}]}, "Unrecognized field ofset"),
        ({"offset": []}, "Unrecognized field offset"),
        ([], "must be a JSON object"),
        ({"offsets": [at("x", 1)]}, "Partition values for sink connectors need to be integers."),
        ({"offsets": [at(9, 1)]}, "no topic partition t-9"),
        ({"timestamp": "soon"}, "timestamp must be"),
        ({"timestamp": 1, "offsets": [at(0, 1)]}, "not both"),
    ],
)
def test_a_wrong_body_is_400_and_names_the_fault(api: Api, body: object, words: str) -> None:
    sink(api)
    status, message = api.error("PATCH", O, body)
    assert status == 400
    assert words in message
    assert api.call("GET", O) == (200, {"offsets": [at(0, 5), at(1, 7)]})


def test_zombie_sink_tasks_keep_offsets_from_being_changed(api: Api) -> None:
    sink(api)
    api.setup.groups.busy = True
    api.setup.groups.groups["connect-a"].pop(TopicPartition("t", 1))
    changes = [{"offsets": entries} for entries in ([at(0, 1)], [at(0, None)], [at(1, None)], [at(0, None), at(1, 2)])]
    for method, body in [*(("PATCH", change) for change in changes), ("DELETE", None)]:
        status, message = api.error(method, O, body)
        assert status == 409
        assert "zombie sink tasks" in message
        assert "safely retried" in message
        assert api.call("GET", O) == (200, {"offsets": [at(0, 5)]})
    api.setup.groups.busy = False
    assert api.call("DELETE", O) == (200, RESET)


def test_the_connector_may_not_say_refuse_or_not_support_it(api: Api) -> None:
    source(api)
    change = {"offsets": [{"partition": {"file": "f"}, "offset": {"position": 4}}]}
    BOARD.alters["a"] = False
    message = api.call("PATCH", O, change)[1]["message"]
    assert message.startswith("The Connect framework-managed offsets for this connector have been altered successfully")
    assert "manually altered in the system that the connector uses" in message
    assert "manually reset" in api.call("DELETE", O)[1]["message"]
    for error, status in [
        (ConnectException("not that one"), 400),
        (RetriableException("not that one"), 500),
        (NotImplementedError(), 400),
        (KeyError("x"), 500),
    ]:
        BOARD.fail["a", "alter_offsets"] = error
        found, text = api.error("PATCH", O, change)
        assert found == status
        assert text == "not that one" or "Failed to alter offsets for connector a" in text
        assert api.call("GET", O) == (200, {"offsets": []})


# ------------------------------------------------------------------ beyond Java
def test_a_dry_run_tells_what_would_be_read_again_and_changes_nothing(api: Api) -> None:
    sink(api)
    status, plan = api.call("PATCH", f"{O}?dry_run=true", {"offsets": [at(0, 2), at(1, 50)]})
    assert (status, plan["dry_run"]) == (200, True)
    assert [(one["records_read_again"], one["records_skipped"], one["records_left"]) for one in plan["offsets"]] == [
        (3, 0, 98),
        (0, 43, 50),
    ]
    plan = api.call("DELETE", f"{O}?dry_run=true")[1]
    assert plan["message"].endswith("12 records would be read again")
    assert api.call("GET", O)[1] == {"offsets": [at(0, 5), at(1, 7)]}
    assert BOARD.altered == []


def test_a_sink_can_be_set_to_a_time(api: Api) -> None:
    sink(api)
    assert api.call("PATCH", O, {"timestamp": "1970-01-01T00:00:03Z"}) == (200, ALTERED)
    assert api.call("GET", O)[1] == {"offsets": [at(0, 3), at(1, 3)]}
    assert api.call("DELETE", f"{O}?timestamp=4000") == (200, ALTERED)
    assert api.call("GET", O)[1] == {"offsets": [at(0, 4), at(1, 4)]}
    entry = {"partition": at(1, 0)["partition"], "offset": {"kafka_timestamp": 90_000}}
    assert api.call("PATCH", O, {"offsets": [entry]}) == (200, ALTERED)
    assert api.call("GET", O)[1] == {"offsets": [at(0, 4), at(1, 90)]}


# ------------------------------------------------------------------ topics
def test_topics_are_those_since_the_last_reset(api: Api) -> None:
    topics = "/connectors/a/topics"
    assert api.call("GET", topics) == (200, {"a": {"topics": []}})
    api.setup.statuses.note_topics("a", ["x", "b"], 0)
    assert api.call("GET", topics) == (200, {"a": {"topics": ["b", "x"]}})
    assert api.call("PUT", f"{topics}/reset") == (202, None)
    assert api.call("GET", topics) == (200, {"a": {"topics": []}})
    api.setup.statuses.note_topics("a", ["x"], 0)
    api.create("a")
    api.call("DELETE", "/connectors/a")
    assert api.call("GET", topics) == (200, {"a": {"topics": []}})


def test_tracking_and_its_reset_can_be_switched_off() -> None:
    with serving(topic_tracking=False) as api:
        assert api.error("GET", "/connectors/a/topics") == (403, "Topic tracking is disabled.")
        assert api.error("PUT", "/connectors/a/topics/reset") == (403, "Topic tracking is disabled.")
    with serving(topic_reset=False) as api:
        assert api.call("GET", "/connectors/a/topics")[0] == 200
        assert api.error("PUT", "/connectors/a/topics/reset") == (403, "Topic tracking reset is disabled.")
