"""Reads request bodies; an invalid body raises a ``BadRequestException`` with a clear message."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from json import JSONDecoder
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request

from penstock.config.parse import java_trim
from penstock.converters.json.plain_bytes import plain_json
from penstock.errors import BadRequestException
from penstock.herder.changes import other_name
from penstock.herder.offset_changes import AlterRequest, OffsetEntry
from penstock.model import TargetState
from penstock.model.payloads import BackfillRange, BackfillRequest, GivenRecord, PreviewLimits

#: The largest body that is read; configurations and offsets are far smaller.
MAX_BODY_BYTES: Final = 8 * 1024 * 1024
BODY_TIMEOUT_S: Final = 30.0

#: A Content-Length with more digits is too large in any case.
_DIGITS: Final = 18


class WrittenNumber(float):
    """A number with a fraction or an exponent that keeps its spelling: settings are text."""

    def __init__(self, text: str) -> None:
        self.text = text


@dataclass(frozen=True)
class CreateRequest:
    """The body of ``POST /connectors``."""

    name: str
    config: dict[str, str | None]
    target: TargetState


async def read_json(request: Request, *, as_written: bool = False) -> object:
    """The body as JSON.

    Args:
        as_written: True to read numbers with a fraction or an exponent as ``WrittenNumber``.

    Raises:
        HTTPException: 415 for another media type, 413 for a body that is too large, 408 for one that does not come.
        BadRequestException: no body, or not JSON.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in ("application/json", ""):
        raise HTTPException(415)
    body = await read_body(request)
    if not body.strip():
        raise BadRequestException("The request needs a JSON body")
    if not media_type:
        raise HTTPException(415)
    return parse_json(body, WrittenNumber if as_written else float)


def parse_json(body: bytes, parse_float: Callable[[str], float] = float) -> object:
    """Parses JSON from bytes, in any encoding that JSON may have.

    >>> parse_json(b'{"a": [1, 1.50]}'), parse_json(b"\\xff\\xfe7\\x00")
    ({'a': [1, 1.5]}, 7)
    """
    try:
        text = plain_json(body).decode().lstrip(" \t\r\n")
        # Text after the value is ignored, as Jackson does.
        value: object = JSONDecoder(parse_float=parse_float, parse_constant=_no_constant).raw_decode(text)[0]
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise BadRequestException("The request body has half of a surrogate pair, which no text may hold") from error
    except (ValueError, RecursionError) as error:
        raise BadRequestException(f"The request body is not valid JSON: {error}") from error
    return value


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is not JSON")


async def read_body(request: Request, most: int = MAX_BODY_BYTES) -> bytes:
    """The body as bytes.

    Args:
        most: The limit of its length in bytes.
    """
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and (len(length) > _DIGITS or int(length) > most):
        raise HTTPException(413)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise HTTPException(413)
    except TimeoutError:
        raise HTTPException(408) from None
    # Kept for another worker, if the request is forwarded.
    request.state.body = bytes(body)
    return bytes(body)


def config_map(value: object, what: str = "The configuration") -> dict[str, str | None]:
    """A configuration from JSON: scalars become text, null stays.

    >>> config_map({"tasks.max": 1, "errors.log.enable": True, "topic": None, "rate": WrittenNumber("1e5")})
    {'tasks.max': '1', 'errors.log.enable': 'true', 'topic': None, 'rate': '1e5'}
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
        case WrittenNumber():
            return value.text
        case int() | float():
            return str(value)
        case _:
            raise BadRequestException(
                f"The value of {key} must be a text, number or boolean, not an "
                f"{'object' if isinstance(value, Mapping) else 'array'}; "
                "lists are written as text with commas"
            )


def connector_name(value: object) -> str:
    """The name in a request, without blanks around it; empty if there is none, which validation reports."""
    if isinstance(value, Mapping | list):
        raise BadRequestException("The name of a connector must be a text")
    return java_trim(_scalar("name", value) or "")


def same_name(name: str, config: Mapping[str, str | None]) -> None:
    """Refuses a configuration that names another connector."""
    inside = config.get("name")
    if inside is not None and inside != name:
        raise other_name(name, inside)


def create_request(value: object) -> CreateRequest:
    """The body of ``POST /connectors``."""
    value = _fields(
        value,
        ("name", "config", "initial_state"),
        "The request body must be a JSON object with name and config",
        "a create request has name, config and initial_state",
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


def offsets_request(value: object, *, dry_run: bool) -> AlterRequest:
    """The body of ``PATCH /connectors/{name}/offsets``."""
    value = _fields(
        value,
        ("offsets", "timestamp"),
        "The request body must be a JSON object with offsets",
        "such a request has offsets or timestamp",
    )
    offsets, moment = value.get("offsets"), value.get("timestamp")
    if moment is not None:
        if offsets:
            raise BadRequestException("A request has either offsets or a timestamp, not both")
        return AlterRequest(timestamp_ms=timestamp_ms(moment), dry_run=dry_run)
    if offsets is None or offsets == []:
        raise BadRequestException("Partitions / offsets need to be provided for an alter offsets request")
    if not isinstance(offsets, list):
        raise BadRequestException("offsets must be a JSON array of objects with partition and offset")
    return AlterRequest([_offset_entry(entry) for entry in offsets], dry_run=dry_run)


_RANGE_FIELDS = ("kafka_topic", "kafka_partition", "start_offset", "end_offset")


def backfill_request(value: object, *, dry_run: bool) -> BackfillRequest:
    """The body of ``POST /connectors/{name}/backfill``.

    >>> backfill_request({"from": "1970-01-01T00:00:01Z"}, dry_run=True).start_ms
    1000
    """
    value = _fields(
        value,
        ("from", "to", "offsets", "of"),
        "The request body must be a JSON object with from and to, or offsets",
        "a backfill has from and to, or offsets, and of a source also of",
    )
    begin, end, offsets, of = (value.get(name) for name in ("from", "to", "offsets", "of"))
    if of is not None and (not isinstance(of, str) or not of):
        raise BadRequestException(f"of is the name of a part of a source, a table or a file, not {of!r}")
    if offsets is not None:
        if begin is not None or end is not None:
            raise BadRequestException("A backfill has either offsets or times, not both")
        return _backfill_offsets(offsets, of, dry_run=dry_run)
    if begin is None:
        raise BadRequestException("A backfill has a time at which it begins, from, or offsets")
    end_ms = None if end is None else timestamp_ms(end)
    request = BackfillRequest(timestamp_ms(begin), end_ms, of=of, dry_run=dry_run)
    if request.end_ms is not None and request.start_ms is not None and request.end_ms <= request.start_ms:
        raise BadRequestException(f"A backfill ends after it begins: from is {begin!r}, and to is {end!r}")
    return request


def _backfill_offsets(offsets: object, of: str | None, *, dry_run: bool) -> BackfillRequest:
    if isinstance(offsets, Mapping) and set(offsets) == {"from", "to"}:
        first, end = (_position(offsets[name]) for name in ("from", "to"))
        return BackfillRequest(span=(first, end), of=of, dry_run=dry_run)
    if not isinstance(offsets, list) or not offsets:
        raise BadRequestException(
            f"The offsets of a backfill are a JSON array of objects with {', '.join(_RANGE_FIELDS)} for a sink, or an "
            "object with from and to for a source"
        )
    return BackfillRequest(ranges=[_backfill_range(entry) for entry in offsets], of=of, dry_run=dry_run)


def _position(value: object) -> str | int:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise BadRequestException(
            f"The offsets of a source's backfill go from one text or whole number to another, not {value!r}"
        )
    return value


def _backfill_range(entry: object) -> BackfillRange:
    if not isinstance(entry, Mapping) or set(entry) != set(_RANGE_FIELDS):
        raise BadRequestException(f"A range of a backfill must be a JSON object with {', '.join(_RANGE_FIELDS)}")
    topic, *numbers = (entry[name] for name in _RANGE_FIELDS)
    if not isinstance(topic, str) or not all(map(_whole, numbers)):
        raise BadRequestException(
            f"A range of a backfill has a text for kafka_topic and whole numbers from 0 on for the rest, not {entry!r}"
        )
    partition, start, end = numbers
    return BackfillRange(topic, partition, start, end)


def _offset_entry(entry: object) -> OffsetEntry:
    entry = _fields(
        entry,
        ("partition", "offset"),
        "Each entry of offsets must be a JSON object with partition and offset",
        "an entry has partition and offset",
    )
    partition, offset = entry.get("partition"), entry.get("offset")
    for name, part in (("partition", partition), ("offset", offset)):
        if part is not None and not isinstance(part, Mapping):
            raise BadRequestException(f"The {name} of an entry must be a JSON object or null")
    return OffsetEntry(partition, offset)


_PREVIEW_FIELDS = ("config", "records", "limits")
_RECORD_FIELDS = ("topic", "partition", "timestamp", "key", "value", "headers")
_LIMITS = {"records": 1_000, "seconds": 60, "bytes": 64 * 1024 * 1024}


@dataclass(frozen=True)
class PreviewBody:
    """The body of ``POST /connector-plugins/{plugin}/preview``."""

    config: dict[str, str | None]
    records: list[GivenRecord] | None
    limits: PreviewLimits


def preview_body(value: object) -> PreviewBody:
    """Reads the body of a preview."""
    fields = _known_fields(value, _PREVIEW_FIELDS, "The request body")
    if fields.get("config") is None:
        raise BadRequestException("The request has no config")
    records = fields.get("records")
    if records is not None and not isinstance(records, list):
        raise BadRequestException("records must be a JSON array")
    limits = _known_fields({} if fields.get("limits") is None else fields["limits"], tuple(_LIMITS), "limits")
    for name, number in limits.items():
        good = isinstance(number, int | float) and not isinstance(number, bool) and 0 < number <= _LIMITS[name]
        if not good:
            raise BadRequestException(f"limits.{name} must be a number above 0, at most {_LIMITS[name]}")
    default = PreviewLimits()
    return PreviewBody(
        config_map(fields["config"], "config"),
        None if records is None else [_given_record(record) for record in records],
        PreviewLimits(
            int(limits.get("records", default.records)),
            float(limits.get("seconds", default.seconds)),
            int(limits.get("bytes", default.bytes)),
        ),
    )


def _given_record(value: object) -> GivenRecord:
    fields = _known_fields(value, _RECORD_FIELDS, "Each of records")
    topic, headers = fields.get("topic", "preview"), {} if fields.get("headers") is None else fields["headers"]
    numbers = {name: fields.get(name) for name in ("partition", "timestamp")}
    if not isinstance(topic, str) or not isinstance(headers, Mapping):
        raise BadRequestException("topic of a record must be a text, headers an object of texts")
    for name, most in (("partition", 2**31), ("timestamp", 2**62)):
        if numbers[name] is not None and not _whole(numbers[name], most):
            raise BadRequestException(f"{name} of a record must be a whole number that is not negative")
    texts = {str(name): str(text) for name, text in headers.items()}
    return GivenRecord(topic, fields.get("key"), fields.get("value"), headers=texts, **numbers)


def _known_fields(value: object, known: Sequence[str], what: str) -> Mapping[str, Any]:
    names = ", ".join(sorted(known))
    return _fields(value, known, f"{what} must be a JSON object with {names}", f"{names} are known")


def _fields(value: object, known: Sequence[str], no_object: str, expected: str) -> Mapping[str, Any]:
    """A JSON object without other fields than the known ones."""
    if not isinstance(value, Mapping):
        raise BadRequestException(no_object)
    unknown = sorted(set(value) - set(known))
    if unknown:
        raise BadRequestException(f"Unrecognized field {', '.join(unknown)}; {expected}")
    return value


def _whole(value: object, most: int = 2**63) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < most


def timestamp_ms(value: object) -> int:
    """A point in time: milliseconds since 1970, or ISO 8601 text (UTC when it names no zone).

    >>> timestamp_ms("1970-01-01T00:00:01Z"), timestamp_ms("1500"), timestamp_ms(7)
    (1000, 1500, 7)
    """
    if isinstance(value, int) and _whole(value):
        return value
    if isinstance(value, str):
        text = value.strip()
        if text.isascii() and text.isdigit() and len(text) < 19:
            return int(text)
        try:
            moment = datetime.fromisoformat(text)
            aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            milliseconds = int(aware.timestamp() * 1000)
        except (ValueError, OverflowError):
            milliseconds = -1
        if milliseconds >= 0:
            return milliseconds
    raise BadRequestException(
        f"timestamp must be milliseconds since 1970 or a date and time such as 2030-01-31T12:00:00Z, not {value!r}"
    )
