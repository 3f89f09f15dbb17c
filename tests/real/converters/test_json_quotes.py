"""Objects cut at their quotes: the same text as by a pattern, of the messages that are written like the first."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.converters.json_parsing import Text
from penstock.converters.json_quotes import Layout
from penstock.converters.json_texts import guess
from penstock.pipeline.spark.session import SparkRuntime

pytestmark = pytest.mark.java

FIRST = '{"a": "one","b":1, "c":true,"d":"four"}'
SAME = [
    FIRST,
    '{"a": "two words, with = and {braces}","b":-12, "c":false,"d":","}',
    '{"a": "","b":123456789012345678, "c":true,"d":""}',
    '{"a": ":","b":0, "c":true,"d":"Grüße 日本 \U0001f600\u2028"}',
    '{"a": "$1","b":1, "c":true,"d":"}"}',
]
OTHERS = [
    '{"a":"other space","b":1, "c":true,"d":"four"}',
    '{"a": "one","b":-0, "c":true,"d":"four"}',
    '{"a": "one","b":01, "c":true,"d":"four"}',
    '{"a": "one","b":1.5, "c":true,"d":"four"}',
    '{"a": "one","b":1234567890123456789, "c":true,"d":"four"}',
    '{"a": "one","b": 1, "c":true,"d":"four"}',
    '{"a": "one","b":"1", "c":true,"d":"four"}',
    '{"a": one,"b":1, "c":true,"d":"four"}',
    '{"a": null,"b":1, "c":true,"d":"four"}',
    '{"a": "one","b":1, "c":maybe,"d":"four"}',
    '{"A": "one","b":1, "c":true,"d":"four"}',
    '{"a": "one","b":1, "c":true,"d":"four","e":"five"}',
    '{"a": "one","b":1, "c":true,"d":"four"} ',
    ' {"a": "one","b":1, "c":true,"d":"four"}',
    '{"a": "one","b":1, "c":true,"d":"four"',
    '{"a": "one","b":1, "c":true}',
    '{"a": "one""b":1, "c":true,"d":"four"}',
    '["a": "one","b":1, "c":true,"d":"four"}',
    '"',
    "",
]


def by_both(runtime: SparkRuntime, first: str, messages: Sequence[str]) -> tuple[list[object], list[object]]:
    """What becomes of messages that look like the first one: cut at their quotes, and by the pattern."""
    session: SparkSession = runtime.session(180)
    cutting = guess(pa.chunked_array([[first.encode()]]))
    assert cutting is not None
    assert cutting.layout is not None
    text = Text(F.col("text"), checked=True)

    def texts(layout: Layout | None) -> list[object]:
        frame = session.createDataFrame([(one,) for one in messages], "text string")
        return [row[0] for row in frame.select(cutting.rewritten(text, layout, lambda column: column)).collect()]

    return texts(cutting.layout), texts(None)


def test_messages_written_like_the_first_are_rewritten_and_no_others(spark_runtime: SparkRuntime) -> None:
    cut, matched = by_both(spark_runtime, FIRST, [*SAME, *OTHERS])

    assert cut[: len(SAME)] == matched[: len(SAME)]
    assert None not in cut[: len(SAME)]
    assert cut[0] == "{a=one, b=1, c=true, d=four}"
    assert cut[len(SAME) :] == [None] * len(OTHERS)


PLAIN = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters='"\\'), max_size=8)
VALUE = PLAIN | st.integers(-(10**18) + 1, 10**18 - 1) | st.booleans()


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.fixed_dictionaries(dict.fromkeys(("name", "size", "x"), VALUE)), min_size=1, max_size=12),
    st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : ")]),
)
def test_any_plain_object_is_rewritten_as_by_the_pattern(
    spark_runtime: SparkRuntime, objects: list[dict[str, object]], separators: tuple[str, str]
) -> None:
    messages = [json.dumps(one, ensure_ascii=False, separators=separators) for one in objects]

    cut, matched = by_both(spark_runtime, messages[0], messages)

    assert cut == matched
    assert cut[0] is not None
