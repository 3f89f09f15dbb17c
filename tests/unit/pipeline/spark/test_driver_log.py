"""What is told of a Spark JVM that did not start."""

import os
from collections.abc import Sequence

import pytest

from penstock.pipeline.spark.jvm import _LogTail

REASON = 'Exception in thread "main" org.apache.spark.SparkException: Master must either be yarn or start with spark'
FRAMES = [f"\tat org.apache.spark.deploy.SparkSubmit{number}(SparkSubmit.scala:7)" for number in range(30)]


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        (["WARNING: Using incubator modules", "", REASON, *FRAMES], REASON),
        (
            ["Error: Could not find or load main class X", "Caused by: y"],
            "Error: Could not find or load main class X | Caused by: y",
        ),
        (["Unrecognized VM option", "the end"], "Unrecognized VM option | the end"),
    ],
)
def test_the_reason_comes_first_and_no_frame_pushes_it_out(printed: Sequence[str], told: str) -> None:
    reader, writer = os.pipe()
    tail = _LogTail(reader)
    with os.fdopen(writer, "w") as stream:
        stream.writelines(f"{line}\n" for line in printed)
    tail.join()
    assert tail.text() == told
