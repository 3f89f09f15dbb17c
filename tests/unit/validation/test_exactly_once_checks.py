"""What the validation of a source says of exactly-once delivery."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from penstock.api import ConnectorTransactionBoundaries, ExactlyOnceSupport
from penstock.connectors.file.source import FileStreamSourceConnector
from penstock.errors import BadRequestException
from penstock.herder.queries import explain_commit
from penstock.model import ConnectorType
from penstock.plugins import Plugins
from penstock.settings.distributed import ExactlyOnceSourceSupport as WorkerSupport
from penstock.validation.validator import ConnectorValidator

SAYS: dict[str, Any] = {}
ASKED: list[Mapping[str, str]] = []
BASE = {"name": "a", "connector.class": f"{__name__}:Saying", "topic": "t"}
ENABLED, PREPARING, DISABLED = WorkerSupport.ENABLED, WorkerSupport.PREPARING, WorkerSupport.DISABLED


class Saying(FileStreamSourceConnector):
    """Says, or raises, what a test wants."""

    def exactly_once_support(self, props: Mapping[str, str]) -> Any:
        ASKED.append(props)
        return _said("support")

    def can_define_transaction_boundaries(self, props: Mapping[str, str]) -> Any:
        ASKED.append(props)
        return _said("boundaries")


def _said(what: str) -> Any:
    said = SAYS.get(what)
    if isinstance(said, Exception):
        raise said
    return said


@pytest.fixture(autouse=True)
def silent() -> None:
    SAYS.clear()
    ASKED.clear()


def faults(worker: WorkerSupport | None, **own: str) -> dict[str, list[str]]:
    config = {**BASE, **{name.replace("_", "."): text for name, text in own.items()}}
    found = ConnectorValidator(Plugins(), exactly_once=worker).infos(config, config).to_json()["configs"]
    assert isinstance(found, list)
    return {entry["value"]["name"]: entry["value"]["errors"] for entry in found if entry["value"]["errors"]}


def test_a_connector_that_can_is_taken_by_a_worker_that_does() -> None:
    SAYS.update(support=ExactlyOnceSupport.SUPPORTED, boundaries=ConnectorTransactionBoundaries.SUPPORTED)
    assert faults(ENABLED, exactly_once_support="REQUIRED", transaction_boundary="Connector") == {}
    assert len(ASKED) == 2
    assert "tasks.max" not in ASKED[0], "what is not set is not in what the connector is asked with"
    assert ASKED[0]["exactly.once.support"] == "REQUIRED"


@pytest.mark.parametrize("worker", [PREPARING, DISABLED])
def test_a_worker_that_does_not_deliver_exactly_once_refuses_who_requires_it(worker: WorkerSupport) -> None:
    SAYS.update(support=ExactlyOnceSupport.SUPPORTED)
    assert faults(worker, exactly_once_support="required") == {
        "exactly.once.support": ["This worker does not have exactly-once source support enabled."]
    }


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (None, "The connector does not implement the API required for preflight validation of exactly-once source"),
        (ExactlyOnceSupport.UNSUPPORTED, "The connector does not support exactly-once semantics with the provided"),
        ("yes", "An unexpected error occurred during validation: Unexpected value returned from SourceConnector::"),
        (ValueError("no table"), "An unexpected error occurred during validation: no table"),
        (ValueError(), "An unexpected error occurred during validation; please see the worker logs for more details."),
    ],
)
def test_what_a_connector_cannot_or_does_not_say_is_an_error_on_the_setting(said: object, expected: str) -> None:
    SAYS.update(support=said)
    found = faults(ENABLED, exactly_once_support="required")
    assert list(found) == ["exactly.once.support"]
    assert found["exactly.once.support"][0].startswith(expected)
    assert faults(ENABLED) == {}, "requested is no requirement"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (None, "This connector has returned a null value from its canDefineTransactionBoundaries method, which is not"),
        (ConnectorTransactionBoundaries.UNSUPPORTED, "The connector does not support connector-defined transaction"),
        (RuntimeError("asked too early"), "An unexpected error occurred during validation: asked too early"),
    ],
)
def test_the_same_of_transactions_that_the_connector_ends(said: object, expected: str) -> None:
    SAYS.update(boundaries=said)
    found = faults(ENABLED, transaction_boundary="connector")
    assert list(found) == ["transaction.boundary"]
    assert found["transaction.boundary"][0].startswith(expected)
    assert faults(DISABLED, transaction_boundary="poll") == {}


def test_values_that_are_none_are_refused_and_nobody_is_asked() -> None:
    found = faults(
        ENABLED,
        exactly_once_support="always",
        transaction_boundary="never",
        transaction_boundary_interval_ms="-1",
        offsets_storage_topic=" ",
    )
    assert set(found) == {
        "exactly.once.support",
        "transaction.boundary",
        "transaction.boundary.interval.ms",
        "offsets.storage.topic",
    }
    assert ASKED == []


def test_a_standalone_worker_asks_nothing_as_in_java() -> None:
    SAYS.update(support=ValueError("not me"))
    assert faults(None, exactly_once_support="required", transaction_boundary="connector") == {}
    assert ASKED == []


def test_a_connector_with_such_a_fault_is_not_created() -> None:
    config = {**BASE, "exactly.once.support": "required"}
    with pytest.raises(BadRequestException, match="does not implement the API required for preflight"):
        ConnectorValidator(Plugins(), exactly_once=ENABLED)(config, config)


def test_what_triggers_the_next_commit_is_told_by_the_boundary() -> None:
    worker = {"offset.flush.interval.ms": "7000"}

    def told(**config: str) -> tuple[object, object]:
        given = {name.replace("_", "."): text for name, text in config.items()}
        found = explain_commit(ConnectorType.SOURCE, worker, given, exactly_once=True)
        return found["every_ms"], found["setting"]

    assert told() == (None, "transaction.boundary")
    assert told(transaction_boundary="INTERVAL") == (7000, "offset.flush.interval.ms")
    own = told(transaction_boundary="interval", transaction_boundary_interval_ms="50")
    assert own == (50, "transaction.boundary.interval.ms")
    assert told(transaction_boundary="connector") == (None, "transaction.boundary")
    assert explain_commit(ConnectorType.SOURCE, worker, {})["every_ms"] == 7000
