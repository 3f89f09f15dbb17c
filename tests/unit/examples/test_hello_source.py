"""The hello-world source of the documentation."""

from __future__ import annotations

from pathlib import Path

from examples.hello_source import HelloSource

from penstock.testing import FrameSuite, SourceSuite, run_source


class TestHello(FrameSuite, SourceSuite):
    connector = HelloSource
    count = 5
    ends = False
    tasks_max = 1

    def prepare(self, path: Path) -> dict[str, str]:
        return {"topic": "greetings"}


def test_it_greets_once_a_second_and_goes_on_counting_after_a_kill() -> None:
    with run_source(HelloSource, {"topic": "greetings"}) as source:
        source.poll()
        source.commit()
        source.kill()
        source.finish(2)

    assert source.values == ["hello 1", "hello 2"]
    assert source.offset({"source": "kit"}) == {"count": 2}
    assert {one.topic for one in source.committed} == {"greetings"}
    assert HelloSource.idle_s == 1.0
