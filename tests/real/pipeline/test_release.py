"""What the JVM keeps of batches that are done with."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.pipeline.release import release
from penstock.pipeline.session import SparkRuntime

pytestmark = pytest.mark.java


def test_a_released_frame_is_gone_from_the_jvm_while_python_still_has_it(spark_runtime: SparkRuntime) -> None:
    session = spark_runtime.session()
    frame = session.createDataFrame(pa.table({"n": [1, 2, 3]}))
    java: Any = frame._jdf
    assert java.schema().size() == 1

    release([frame])

    with pytest.raises(Exception, match="does not exist"):
        java.schema()
