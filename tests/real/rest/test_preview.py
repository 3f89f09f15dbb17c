"""Previews by a running worker: records of a source, of the request, and of a sink's topics, step by step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.testing.worker_process import WorkerProcess

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow]

CHAIN = {
    "transforms": "M,I",
    "transforms.M.type": "org.apache.kafka.connect.transforms.HoistField$Value",
    "transforms.M.field": "line",
    "transforms.I.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.I.static.field": "src",
    "transforms.I.static.value": "v",
}
PLAIN_JSON = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}


def preview(worker: WorkerProcess, plugin: str, **body: object) -> dict[str, Any]:
    """The answer to a preview."""
    status, found = worker.ask("POST", f"/connector-plugins/{plugin}/preview", body)
    assert status == 200, found
    return cast("dict[str, Any]", found)


def test_the_first_records_of_a_source_are_shown_before_and_after_each_step(
    awake_worker: WorkerProcess, tmp_path: Path
) -> None:
    file = tmp_path / "in.txt"
    file.write_text("one\ntwo\nthree\n")
    config = {"connector.class": "FileStreamSource", "file": str(file), "topic": "preview-out", **CHAIN, **PLAIN_JSON}
    limits = {"records": 2, "seconds": 30}
    found = preview(awake_worker, "FileStreamSource", config=config, limits=limits)
    assert (found["type"], found["ended_by"], len(found["records"])) == ("source", "records", 2)
    first = found["records"][0]
    assert first["input"]["value"] == "one"
    assert [(step["transform"], step["after"]["value"]) for step in first["steps"]] == [
        ("M", {"line": "one"}),
        ("I", {"line": "one", "src": "v"}),
    ]
    assert first["output"]["topic"] == "preview-out"
    assert json.loads(first["output"]["value"]) == {"line": "one", "src": "v"}
    assert "preview" not in cast("list[str]", awake_worker.get("/connectors")[1])


def test_records_of_the_request_go_through_converters_and_chain_of_a_sink(awake_worker: WorkerProcess) -> None:
    config = {"connector.class": "FileStreamSink", "topics": "t", **CHAIN, **PLAIN_JSON}
    records: list[object] = [{"value": {"x": 1}}, {"value": "{bad"}, {"value": '"text"'}]
    found = preview(awake_worker, "FileStreamSink", config=config, records=records)["records"]
    assert found[0]["output"]["value"] == {"line": {"x": 1}, "src": "v"}
    assert found[1]["error"]["stage"] == "VALUE_CONVERTER"
    assert found[1]["steps"] == []
    assert [step["after"]["value"] for step in found[2]["steps"]] == [{"line": "text"}, {"line": "text", "src": "v"}]


def test_the_messages_of_a_sinks_topics_are_sampled_without_a_group(
    awake_worker: WorkerProcess, tmp_path: Path
) -> None:
    file = tmp_path / "in.txt"
    file.write_text("a\nb\nc\n")
    source = {"connector.class": "FileStreamSource", "file": str(file), "topic": "preview-sampled"}
    assert awake_worker.ask("PUT", "/connectors/preview-source/config", source)[0] == 201
    config = {"connector.class": "FileStreamSink", "topics": "preview-sampled"}
    found: dict[str, Any] = {}

    def sampled() -> bool:
        found.update(preview(awake_worker, "FileStreamSink", config=config, limits={"records": 2, "seconds": 10}))
        return len(found["records"]) == 2

    awake_worker.wait(sampled, "two messages are sampled")
    assert [record["output"]["value"] for record in found["records"]] == ["a", "b"]
    assert [record["input"]["offset"] for record in found["records"]] == [0, 1]
    assert awake_worker.ask("DELETE", "/connectors/preview-source")[0] == 204
