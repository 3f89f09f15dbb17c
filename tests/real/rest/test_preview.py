"""Previews by a running worker: records of a source, of the request, and of a sink's topics, step by step."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from testkit.processes.worker_process import WorkerProcess

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
    status, found = worker.ask("POST", f"/connector-plugins/{plugin}/preview", body, timeout_s=100)
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


@pytest.mark.parametrize(("regex", "fails"), [("(a+)+b", False), (r"(a|aa)+\b(?!c)b", True)])
def test_a_pattern_that_would_take_years_does_not_stop_the_worker(
    awake_worker: WorkerProcess, regex: str, fails: bool
) -> None:
    route = {"transforms": "R", "transforms.R.type": "RegexRouter", "transforms.R.replacement": "x"}
    config = {"connector.class": "FileStreamSource", "file": "f", "topic": "t", **route, "transforms.R.regex": regex}
    record = {"topic": "a" * 60, "value": "v"}
    found = preview(awake_worker, "FileStreamSource", config=config, records=[record])["records"][0]
    if fails:
        assert regex in found["error"]["message"]
    else:
        assert found["output"]["topic"] == "a" * 60
    assert awake_worker.get("/connectors")[0] == 200


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


def test_twenty_previews_at_once_cost_a_worker_little(awake_worker: WorkerProcess, tmp_path: Path) -> None:
    """How little depends on the machine (`python -m benchmarks.previews`); importing Python anew each time is more."""
    file = tmp_path / "in.txt"
    file.write_text("".join(f"line {number}\n" for number in range(1000)))
    config = {"connector.class": "FileStreamSource", "file": str(file), "topic": "preview-many", **CHAIN, **PLAIN_JSON}

    def one(_: int) -> int:
        found = preview(awake_worker, "FileStreamSource", config=config, limits={"records": 5, "seconds": 30})
        return len(found["records"])

    one(0)
    before = cpu_seconds(awake_worker.pid)
    with ThreadPoolExecutor(20) as threads:
        assert list(threads.map(one, range(20))) == [5] * 20
    assert cpu_seconds(awake_worker.pid) - before < 8


def cpu_seconds(root: int) -> float:
    """CPU seconds of a process, and of all below it, those that have ended included."""
    stats = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit():
                stats[int(entry.name)] = (entry / "stat").read_text().rpartition(")")[2].split()
    family = {root}
    while grown := {pid for pid, fields in stats.items() if int(fields[1]) in family} - family:
        family |= grown
    ticks = sum(int(number) for pid in family for number in stats[pid][11:15])
    return ticks / os.sysconf("SC_CLK_TCK")
