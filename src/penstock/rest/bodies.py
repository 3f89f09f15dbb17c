"""Reads request bodies: everything that is wrong with one is a ``BadRequestException`` with a clear text.

Main functions: ``read_json``, ``config_map``, ``create_request``, ``connector_name``. Pure but for ``read_json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request

from penstock.errors import BadRequestException
from penstock.model import TargetState

_CREATE_FIELDS = {"name", "config", "initial_state"}


@dataclass(frozen=True)
class CreateRequest:
    """The body of ``POST /connectors``."""

    name: str
    config: dict[str, str | None]
    target: TargetState


async def read_json(request: Request) -> object:
    """The body as JSON.

    Raises:
        HTTPException: 415 for another media type.
        BadRequestException: no body, or not JSON.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in ("application/json", ""):
        raise HTTPException(415)
    body = await request.body()
    if not body.strip():
        raise BadRequestException("The request needs a JSON body")
    if not media_type:
        raise HTTPException(415)
    try:
        value: object = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequestException(f"The request body is not valid JSON: {error}") from error
    return value


def config_map(value: object, what: str = "The configuration") -> dict[str, str | None]:
    """A configuration out of JSON: scalars become text, null stays.

    >>> config_map({"tasks.max": 1, "errors.log.enable": True, "topic": None})
    {'tasks.max': '1', 'errors.log.enable': 'true', 'topic': None}
    """
    if not isinstance(value, Mapping):
        raise BadRequestException(f"{what} must be a JSON object of names and values")
    return {key: _scalar(key, item) for key, item in value.items()}


def _scalar(key: str, value: object) -> str | None:
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return orjson.dumps(value).decode()
        case _:
            raise BadRequestException(
                f"The value of {key} must be a text, number or boolean, not an {_json_kind(value)}; "
                "lists are written as text with commas"
            )


def _json_kind(value: object) -> str:
    return "object" if isinstance(value, Mapping) else "array"


def connector_name(value: object) -> str:
    """The name in a request, without blanks around it; empty when there is none: validation then says so.

    Raises:
        BadRequestException: it is no text.
    """
    if value is not None and not isinstance(value, str):
        raise BadRequestException("The name of a connector must be a text")
    return (value or "").strip()


def same_name(name: str, config: Mapping[str, str | None]) -> None:
    """Refuses a configuration that names another connector.

    Raises:
        BadRequestException: it does.
    """
    inside = config.get("name")
    if inside is not None and inside != name:
        raise BadRequestException(
            f"Connector name configuration ({inside}) doesn't match connector name in the URL ({name})"
        )


def create_request(value: object) -> CreateRequest:
    """The body of ``POST /connectors``.

    Raises:
        BadRequestException: it is not what it must be.
    """
    if not isinstance(value, Mapping):
        raise BadRequestException("The request body must be a JSON object with name and config")
    unknown = sorted(set(value) - _CREATE_FIELDS)
    if unknown:
        raise BadRequestException(
            f"Unrecognized field {', '.join(unknown)}; a create request has name, config and initial_state"
        )
    name = connector_name(value.get("name"))
    if value.get("config") is None:
        raise BadRequestException("The request has no config")
    config = config_map(value["config"], "config")
    same_name(name, config)
    initial_state = value.get("initial_state")
    if initial_state is not None and not isinstance(initial_state, str):
        raise BadRequestException("initial_state must be a text")
    try:
        target = TargetState.from_initial_state(initial_state)
    except ValueError as error:
        raise BadRequestException(str(error)) from error
    return CreateRequest(name, config, target)
