"""Runs vectors: one by one, or shuffled into large batches, and judges every outcome.

Main functions: ``run_one_by_one`` and ``run_shuffled``. Both give one verdict for each vector; shuffled, a vector
passes when each of its copies in the batch does. Records that no class can take stand among them, so that a bad record
cannot spoil its neighbours unseen.

Owning thread: the caller's; ``run_one_by_one`` uses a pool of its own and joins it.
"""

from __future__ import annotations

import base64
import importlib
import itertools
import marshal
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final, Protocol, cast

from conformance.vectors import data_kind
from conformance.vectors.adapter import ConverterInput, PipelineAdapter, decode_record
from conformance.vectors.codec import decode_schema, decode_value
from conformance.vectors.compare import judge
from conformance.vectors.model import Failure, Outcome, Success, Vector, Verdict

#: Kinds that need no Spark.
PLAIN_KINDS: Final = frozenset({"data", "config"})
BATCH_ROWS: Final = 5_000
#: Of a shuffled batch one record in so many is bad.
BAD_EVERY: Final = 50


_BAD: Final = "bad record"
#: No JSON, no UTF-8, a schema of no known type.
_BAD_BYTES: Final = (b'{"a": ', b"\xff\xfe\x00", b'{"schema": {"type": "no"}, "payload": 1}')
#: Parts of a converter's input that belong to the setup.
_SETUP: Final = ("topic", "key", "op", "isKey")


class _PlainKind(Protocol):
    def run(self, vector: Vector) -> Outcome: ...


def run_one_by_one(
    vectors: Sequence[Vector], adapter: PipelineAdapter | None, *, threads: int = 2, seen: Callable[[Verdict], None]
) -> list[Verdict]:
    """Each vector in a batch of its own.

    Args:
        vectors: The vectors.
        adapter: The way to the pipeline; None is enough for kinds that need no Spark.
        threads: How many at once.
        seen: Called with each verdict, in order.
    """

    def run(vector: Vector) -> Verdict:
        return judge(vector, _outcomes([vector], adapter)[0])

    verdicts: list[Verdict] = []
    with ThreadPoolExecutor(threads, thread_name_prefix="vectors") as pool:
        for verdict in pool.map(run, vectors):
            seen(verdict)
            verdicts.append(verdict)
    return verdicts


def run_shuffled(
    vectors: Sequence[Vector],
    adapter: PipelineAdapter | None,
    *,
    rows: int = BATCH_ROWS,
    seed: int = 0,
    seen: Callable[[Verdict], None],
) -> list[Verdict]:
    """All vectors of one class and configuration in one batch, repeated and shuffled among bad records.

    Every row of a vector is judged.

    Args:
        vectors: The vectors.
        adapter: The way to the pipeline; None is enough for kinds that need no Spark.
        rows: Size of a batch.
        seed: Of the shuffling.
        seen: Called with each verdict.
    """
    groups: dict[tuple[str, str, str], list[Vector]] = {}
    for vector in vectors:
        groups.setdefault(vector.setup, []).append(vector)
    verdicts: list[Verdict] = []
    for number, group in enumerate(groups.values()):
        batch = _shuffled(group, rows, random.Random(seed + number))
        worst: dict[str, Verdict] = {}
        judged: set[tuple[str, bytes]] = set()
        for vector, outcome in zip(batch, _outcomes(batch, adapter), strict=True):
            known = (vector.id, _identity(outcome))
            # The same answer to the same vector needs no second judgement; most of the rows are such.
            if vector.id == _BAD or known in judged:
                continue
            judged.add(known)
            verdict = judge(vector, outcome)
            if vector.id not in worst or worst[vector.id].passed:
                worst[vector.id] = verdict
        for vector in group:
            seen(worst[vector.id])
            verdicts.append(worst[vector.id])
    return verdicts


def _identity(outcome: Outcome) -> bytes:
    """Bytes that tell outcomes apart, 1 from 1.0 and True as well."""
    if isinstance(outcome, Success):
        return marshal.dumps(cast("dict[str, Any]", outcome.data), 2)
    return marshal.dumps((outcome.phase, outcome.error, outcome.message, outcome.unusable), 2)


def _shuffled(group: Sequence[Vector], rows: int, order: random.Random) -> list[Vector]:
    """The vectors again and again up to so many rows, each at least once, with bad records in between."""
    if group[0].kind in PLAIN_KINDS or group[0].input is None:
        return list(group)
    bad = _bad_records(group[0])
    room = max(0, rows - len(group))
    batch = [*group, *itertools.islice(itertools.cycle(bad), min(room, rows // BAD_EVERY))]
    batch += itertools.islice(itertools.cycle(group), max(0, rows - len(batch)))
    order.shuffle(batch)
    return batch


def _bad_records(like: Vector) -> list[Vector]:
    """Records for the setup of a vector that fail nearly everywhere: values that deny their schema, senseless bytes.

    Nobody recorded what Java makes of them, so they are not judged; only their neighbours are.
    """
    if like.kind in ("from_connect", "to_connect", "header"):
        schemas: list[dict[str, Any]] = [
            {"type": "int64"},
            {"type": "struct", "fields": [{"name": "a", "schema": {"type": "int32"}}]},
        ]
        if like.kind == "to_connect" or like.input.get("op") == "toConnectHeader":
            inputs: list[dict[str, Any]] = [{"base64": base64.b64encode(data).decode("ascii")} for data in _BAD_BYTES]
        else:
            inputs = [{"schema": schema, "value": "bad"} for schema in schemas]
        own = [{**{name: like.input[name] for name in _SETUP if name in like.input}, **one} for one in inputs]
    else:
        record = like.input["record"] if like.kind == "predicate" else like.input
        records = [{**record, f"{side}Schema": {"type": "int64"}, side: "bad"} for side in ("key", "value")]
        own = [{**like.input, "record": one} for one in records] if like.kind == "predicate" else records
    return [replace(like, id=_BAD, input=one, expect=None, error=None) for one in own]


def _outcomes(vectors: Sequence[Vector], adapter: PipelineAdapter | None) -> list[Outcome]:
    """Returns the outcomes of vectors of one setup."""
    first = vectors[0]
    if first.kind in PLAIN_KINDS:
        return [_plain(first.kind)(vector) for vector in vectors]
    assert adapter is not None, f"{first.kind} needs a pipeline"
    # Decoded once for all copies of a vector in a batch.
    given = {id(vector): _decoded(vector) for vector in {id(one): one for one in vectors}.values()}
    inputs = [one for vector in vectors if not isinstance(one := given[id(vector)], Failure)]
    try:
        answers = iter(_RUNNERS[first.kind](inputs, adapter, first) if inputs else ())
    except ValueError as error:
        answers = iter([_unusable(error)] * len(inputs))
    return [next(answers) if not isinstance(one := given[id(vector)], Failure) else one for vector in vectors]


def _decoded(vector: Vector) -> Any:
    """The input of a vector; a failure where it cannot be read, which is that of this vector alone."""
    try:
        return _DECODERS[vector.kind](vector.input)
    except Exception as error:
        return _unusable(error)


def _unusable(error: Exception) -> Failure:
    unusable = f"the vector cannot be given to our code: {error}"
    return Failure("apply", type(error).__qualname__, str(error), unusable)


def _plain(kind: str) -> Callable[[Vector], Outcome]:
    if kind == "data":
        return data_kind.run
    return cast("_PlainKind", importlib.import_module("conformance.vectors.config_kind")).run


def _transform(inputs: Sequence[Any], adapter: PipelineAdapter, first: Vector) -> list[Outcome]:
    records = [record for record in inputs if record is not None]
    return adapter.apply_transform(records, first.cls, first.config)


def _predicate(inputs: Sequence[Any], adapter: PipelineAdapter, first: Vector) -> list[Outcome]:
    return adapter.test_predicate(inputs, first.cls, first.config, negate=first.input["negate"])


def _from_connect(inputs: Sequence[Any], adapter: PipelineAdapter, first: Vector) -> list[Outcome]:
    return adapter.from_connect(inputs, first.cls, first.config, is_key=bool(first.input.get("isKey")))


def _to_connect(inputs: Sequence[Any], adapter: PipelineAdapter, first: Vector) -> list[Outcome]:
    return adapter.to_connect(inputs, first.cls, first.config, is_key=bool(first.input.get("isKey")))


def _header(inputs: Sequence[Any], adapter: PipelineAdapter, first: Vector) -> list[Outcome]:
    run = adapter.to_header if first.input["op"] == "toConnectHeader" else adapter.from_header
    return run(inputs, first.cls, first.config)


_RUNNERS: Final[Mapping[str, Callable[[Sequence[Any], PipelineAdapter, Vector], list[Outcome]]]] = {
    "transform": _transform,
    "predicate": _predicate,
    "from_connect": _from_connect,
    "to_connect": _to_connect,
    "header": _header,
}


def _value_input(given: Mapping[str, Any]) -> ConverterInput:
    schema = decode_schema(given.get("schema"))
    value = decode_value(given.get("value"), schema)
    return ConverterInput(schema, value, topic=given.get("topic", "t"), key=given.get("key", "h"))


def _bytes_input(given: Mapping[str, Any]) -> ConverterInput:
    if "text" in given:
        data = None if given["text"] is None else given["text"].encode("utf-8", "surrogatepass")
    else:
        data = None if given["base64"] is None else base64.b64decode(given["base64"])
    return ConverterInput(data=data, topic=given.get("topic", "t"), key=given.get("key", "h"))


_DECODERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "transform": lambda given: None if given is None else decode_record(given),
    "predicate": lambda given: decode_record(given["record"]),
    "from_connect": _value_input,
    "to_connect": _bytes_input,
    "header": lambda given: (_bytes_input if given["op"] == "toConnectHeader" else _value_input)(given),
}
