"""Connectors that outlive a standalone worker: configurations and target states after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest
from testkit.connectors.probes import BOARD
from testkit.doubles.control_plane import SOURCE, Setup, running

from penstock.errors import ConnectException
from penstock.model import ConnectorType, TargetState
from penstock.stores.config import FileConnectorStore, StoredConnector


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "connectors.json"


def opened(path: Path) -> FileConnectorStore:
    store = FileConnectorStore(path)
    store.start()
    return store


def leave(path: Path, **targets: str) -> None:
    """A worker that has these connectors, asked for these states, and ends."""
    store = opened(path)
    with running(store) as setup:
        for name, request in targets.items():
            setup.put(name)
            if request:
                getattr(setup.herder, f"{request}_connector")(name).result(10)
    store.stop()


def put_file(setup: Setup, name: str, target: TargetState = TargetState.STARTED, **config: str) -> None:
    """Creates a connector as the command line does."""
    settings = {"connector.class": SOURCE, **config}
    setup.config.in_memory(name)
    setup.herder.put_connector(name, settings, target=target, replace=True).result(10)


def test_what_was_paused_or_stopped_stays_so_after_a_restart(path: Path) -> None:
    leave(path, runs="", rests="pause", stands="stop")
    store = opened(path)
    with running(store) as setup:
        setup.await_state("runs", "RUNNING", ["RUNNING"])
        setup.await_state("rests", "PAUSED", [])
        setup.await_state("stands", "STOPPED", [])
        assert BOARD.of("rests") == BOARD.of("stands") == []
        assert setup.herder.connectors()["rests"].config == {"connector.class": SOURCE, "name": "rests"}
        setup.herder.resume_connector("stands").result(10)
        setup.await_state("stands", "RUNNING", ["RUNNING"])
    store.stop()


def test_a_deleted_connector_does_not_come_back(path: Path) -> None:
    leave(path, a="", b="delete")
    store = opened(path)
    with running(store) as setup:
        setup.await_state("a", "RUNNING", ["RUNNING"])
        assert list(setup.herder.connectors()) == ["a"]
    store.stop()


def test_a_connector_whose_class_is_gone_is_shown_with_the_reason_and_kept(path: Path) -> None:
    store = opened(path)
    store.put(
        "a", StoredConnector({"connector.class": "Gone", "name": "a", "token": "t"}, secrets=frozenset({"token"}))
    )
    with running(store) as setup:
        setup.await_state("a", "FAILED", [])
        view = setup.herder.connectors()["a"]
        assert view.type is ConnectorType.UNKNOWN
        assert view.config["token"] == "[hidden]"
        assert view.status is not None
        assert "which name matches Gone" in str(view.status.trace)
        with pytest.raises(Exception, match="which name matches Gone"):
            setup.herder.restart_connector("a").result(10)
        with pytest.raises(Exception, match="which name matches Gone"):
            setup.herder.read_offsets("a").result(10)
        setup.herder.stop_connector("a").result(10)
        setup.await_state("a", "STOPPED", [])
        assert store.connectors()["a"].target is TargetState.STOPPED
        setup.put("a")
        setup.await_state("a", "STOPPED", [])
        setup.herder.resume_connector("a").result(10)
        setup.await_state("a", "RUNNING", ["RUNNING"])
    store.stop()


def test_a_connector_of_the_command_line_takes_the_place_of_a_stored_one_with_its_state(path: Path) -> None:
    leave(path, a="pause", b="pause")
    store = opened(path)
    BOARD.clear()
    setup = Setup(store)
    setup.herder.start()
    try:
        setup.serve(except_for=["a"])
        setup.await_state("b", "PAUSED", [])
        assert list(setup.herder.connectors()) == ["b"]
        put_file(setup, "a", color="red")
        setup.await_state("a", "RUNNING", ["RUNNING"])
        assert setup.herder.connectors()["a"].config["color"] == "red"
        assert list(store.connectors()) == ["b"]
    finally:
        setup.herder.stop(10)
        store.stop()


def test_nothing_of_a_connector_of_the_command_line_outlives_the_worker(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    store = opened(path)
    with running(store) as setup:
        put_file(setup, "a", target=TargetState.PAUSED)
        setup.await_state("a", "PAUSED", [])
        assert "lasts until" not in caplog.text
        setup.herder.stop_connector("a").result(10)
        setup.put("a", color="blue")
        setup.herder.patch_connector("a", {"shape": "round"}).result(10)
        setup.herder.restart_connector("a").result(10)
        assert setup.herder.connectors()["a"].config["shape"] == "round"
        assert store.connectors() == {}
        assert "Connector a is one of the command line: a change of it lasts until the worker ends" in caplog.text
    store.stop()


def test_what_is_made_over_rest_in_the_place_of_a_deleted_connector_of_the_command_line_is_kept(path: Path) -> None:
    store = opened(path)
    with running(store) as setup:
        put_file(setup, "a")
        setup.herder.delete_connector("a").result(10)
        setup.put("a", color="blue")
        assert store.connectors()["a"].config["color"] == "blue"
    store.stop()


def test_a_connector_made_over_rest_before_its_file_is_read_gives_way(path: Path) -> None:
    store = opened(path)
    with running(store) as setup:
        setup.put("a", color="blue")
        setup.herder.pause_connector("a").result(10)
        put_file(setup, "a", color="red")
        setup.await_state("a", "RUNNING", ["RUNNING"])
        assert setup.herder.connectors()["a"].config["color"] == "red"
        assert store.connectors() == {}
    store.stop()


def test_a_request_that_cannot_be_stored_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(path)
    with running(store) as setup:
        setup.put("a")
        setup.await_state("a", "RUNNING", ["RUNNING"])

        def refuse(*args: object) -> None:
            raise ConnectException("No space left on device")

        monkeypatch.setattr(store, "put", refuse)
        monkeypatch.setattr(store, "remove", refuse)
        for request in (
            lambda: setup.herder.pause_connector("a"),
            lambda: setup.herder.delete_connector("a"),
            lambda: setup.herder.put_connector("a", {"connector.class": SOURCE, "v": "2"}, replace=True),
            lambda: setup.herder.put_connector("b", {"connector.class": SOURCE}),
        ):
            with pytest.raises(ConnectException, match="No space left"):
                request().result(10)
        setup.await_state("a", "RUNNING", ["RUNNING"])
        assert BOARD.of("a") == ["start", "task_configs"]
        assert list(setup.herder.connectors()) == ["a"]
    store.stop()
