"""Values without a schema on their way into frames."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.pipeline.batch.sink.frames import LooseValues
from penstock.pipeline.columns.schemaless import KnownTypes


@pytest.mark.parametrize("topics", [["a", None, "b", "a"], [None, None, None, None], ["a", "a", "a", None]])
def test_a_row_without_a_topic_is_in_no_part(topics: list[str | None]) -> None:
    loose = LooseValues("value")
    loose.add(np.arange(4), [{"n": 1}, {"n": 2}, "text", None])
    parts = loose.typed(pa.chunked_array([topics], pa.string()), KnownTypes(), lambda row, error: None)
    found = sorted(row for part in parts for row in part.rows.tolist())
    assert found == [row for row, topic in enumerate(topics) if topic is not None]
