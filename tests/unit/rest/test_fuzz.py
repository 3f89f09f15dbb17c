"""The API under generated requests, made from its own description: nothing undocumented, no error of ours, no hang."""

from __future__ import annotations

import os
import random
import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import FlakyStrategyDefinition
from hypothesis.stateful import run_state_machine_as_test
from testkit.doubles.control_plane import SINK, SOURCE
from tests.unit.rest.api_client import Api, serving

# Raised to thousands by whoever wants to look longer.
EXAMPLES = int(os.environ.get("PENSTOCK_FUZZ_EXAMPLES", "4"))
ROUNDS = EXAMPLES * 40


#: Of all properties here.
QUICK = settings(
    max_examples=EXAMPLES,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)


def loaded(api: Api) -> Any:
    """The API's description, read by the fuzzer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import schemathesis

        return schemathesis.openapi.from_url(f"{api.http.base_url}/openapi.json")


def checks() -> list[Any]:
    """What every answer must keep: documented status and type, the schema, no error of ours."""
    from schemathesis import checks as known
    from schemathesis.specs.openapi import checks as openapi

    return [
        known.not_a_server_error,
        openapi.status_code_conformance,
        openapi.content_type_conformance,
        openapi.response_schema_conformance,
    ]


def usable(case: Any, dice: random.Random) -> None:
    """Often gives a generated request a class and a name that lead somewhere."""
    body = case.body
    if isinstance(body, dict):
        config = body.get("config", body)
        if isinstance(config, dict) and dice.random() < 0.7 and "level" not in body and "offsets" not in body:
            config["connector.class"] = dice.choice((SOURCE, SINK))
            config.pop("name", None)
            config["tasks.max"] = str(dice.randrange(1, 4))
    if isinstance(case.path_parameters, dict) and "name" in case.path_parameters and dice.random() < 0.8:
        case.path_parameters["name"] = dice.choice(("a", "b", "s"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_generated_requests_get_documented_answers() -> None:
    with serving(timeout_s=10) as api:
        api.create("a")
        api.create("b")
        api.call("POST", "/connectors", {"name": "s", "config": {"connector.class": SINK, "topics": "t"}})
        dice = random.Random(7)
        wanted = checks()
        failures: dict[tuple[str, str], str] = {}
        for found in loaded(api).get_all_operations():
            operation = found.ok()

            @QUICK
            @given(case=operation.as_strategy())
            def ask(case: Any) -> None:
                usable(case, dice)
                try:
                    case.call_and_validate(checks=wanted, timeout=30)
                except BaseException as error:
                    failures.setdefault((case.method, case.formatted_path), _text(error))

            ask()
        assert failures == {}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_generated_sequences_of_requests_get_documented_answers() -> None:
    """What one request has created the next ones use, by the links of the description."""
    with serving(timeout_s=10) as api:
        dice = random.Random(17)
        asked: list[str] = []
        wanted = checks()

        several = settings(QUICK, stateful_step_count=20)

        class Sequences(loaded(api).as_state_machine()):  # type: ignore[misc]
            def before_call(self, case: Any) -> None:
                body = case.body
                if isinstance(body, dict) and case.path == "/connectors":
                    body["name"] = f"made-{len(asked)}"
                linked = dict(case.path_parameters or {})
                usable(case, dice)
                case.path_parameters = linked
                asked.append(f"{case.method} {case.path}")

            def validate_response(self, response: Any, case: Any, **more: Any) -> None:
                # Paths are wrong on purpose here, too: to nowhere, or, with an empty name, to another resource. Only
                # what the framework itself answers to them has no media type.
                if response.status_code not in (404, 405) or "content-type" in response.headers:
                    case.validate_response(response, checks=wanted)

            def get_call_kwargs(self, case: Any) -> dict[str, Any]:
                return {"timeout": 30}

        tries = 0
        while len(asked) < ROUNDS and tries < ROUNDS:
            tries += 1
            try:
                run_state_machine_as_test(Sequences, settings=several)
            except FlakyStrategyDefinition:
                # Connectors start and stop in their own time, so one sequence does not always go the same way.
                continue
        answered = {operation for operation in asked if "{name}" in operation}
        assert len(answered) > 3, f"only {answered} of {len(asked)} requests were about a connector"
        assert len(asked) >= ROUNDS


def _text(error: BaseException) -> str:
    inner = getattr(error, "exceptions", [error])
    return "; ".join(f"{type(one).__name__}: {one}" for one in inner)


@pytest.mark.slow
def test_random_bytes_as_bodies_are_refused() -> None:
    with serving(timeout_s=10) as api:
        api.create("a")
        dice = random.Random(11)
        paths = [
            ("POST", "/connectors"),
            ("PUT", "/connectors/a/config"),
            ("PATCH", "/connectors/a/config"),
            ("PATCH", "/connectors/a/offsets"),
            ("PUT", "/connector-plugins/FileStreamSource/config/validate"),
            ("PUT", "/admin/loggers/x"),
        ]
        for _ in range(ROUNDS):
            method, path = dice.choice(paths)
            body = dice.randbytes(dice.randrange(60))
            if dice.random() < 0.5:
                body = b'{"name":' + body + b',"config":{}}'
            answer = api.http.request(method, path, content=body, headers={"content-type": "application/json"})
            assert answer.status_code == 400, (method, path, body, answer.text)
