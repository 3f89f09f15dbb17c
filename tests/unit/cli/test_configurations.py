"""Connector files of the command line."""

import json
from pathlib import Path

import pytest

from penstock.cli.configurations import parse_connector_file, read_connector_files
from penstock.errors import ConfigException
from penstock.model import TargetState


def test_properties_flat_json_and_requests_mean_the_same(tmp_path: Path) -> None:
    texts = {
        "a.properties": "name=a\ntasks.max=2\n",
        "b.json": '{"name": "b", "tasks.max": 2}',
        "c.json": '{"name": "c", "config": {"tasks.max": "2"}, "initial_state": "stopped"}',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = read_connector_files([str(tmp_path / name) for name in texts])
    assert [(one.name, one.config, one.target) for one in found] == [
        ("a", {"name": "a", "tasks.max": "2"}, TargetState.STARTED),
        ("b", {"name": "b", "tasks.max": "2"}, TargetState.STARTED),
        ("c", {"name": "c", "tasks.max": "2"}, TargetState.STOPPED),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tasks.max=1", "has no name; add a line name="),
        ("name=", "has no name"),
        ("name=a\nx=\\u12", "is not a properties file"),
        ("{bad", "is not valid JSON"),
        ('{"name": "a", "topics": ["x"]}', "the value of topics must be"),
        ('{"name": "a", "config": {"name": "b"}}', "has two names: a, and b in its config"),
        ('{"name": "a", "config": {}, "initial_state": "GONE"}', "initial_state must be one of"),
        ('{"name": "a", "config": {}, "initial_state": 1}', "initial_state|attribute"),
    ],
)
def test_wrong_files_say_which_and_why(text: str, words: str) -> None:
    with pytest.raises(ConfigException, match=f"x.properties.*{words}"):
        parse_connector_file("x.properties", text)


def test_the_saved_answer_about_a_connector_is_a_file_of_one(caplog: pytest.LogCaptureFixture) -> None:
    answer = {
        "name": "a",
        "config": {"name": "a", "connector.class": "FileStreamSink", "topics": "t", "file": None},
        "tasks": [{"connector": "a", "task": 0}],
        "type": "sink",
    }

    found = parse_connector_file("a.json", json.dumps(answer))

    assert found.config == {"name": "a", "connector.class": "FileStreamSink", "topics": "t"}
    assert caplog.text == ""


def test_a_field_that_is_not_known_is_passed_over_and_named(caplog: pytest.LogCaptureFixture) -> None:
    assert parse_connector_file("a.json", '{"name": "a", "config": {}, "inital_state": "STOPPED"}').name == "a"
    assert "a.json has fields next to config that are not used: inital_state" in caplog.text


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("one.properties", "two.properties"):
        (tmp_path / name).write_text("name=same", encoding="utf-8")
    with pytest.raises(ConfigException, match=r"one\.properties and .*two\.properties both have name=same"):
        read_connector_files([str(tmp_path / "one.properties"), str(tmp_path / "two.properties")])


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigException, match=r"gone\.properties cannot be read: No such file"):
        read_connector_files([str(tmp_path / "gone.properties")])
    (tmp_path / "latin.properties").write_bytes(b"name=\xff")
    with pytest.raises(ConfigException, match=r"latin\.properties is not UTF-8"):
        read_connector_files([str(tmp_path / "latin.properties")])
