"""The hello-world source of the documentation, by the tests of the documentation."""

from __future__ import annotations

from examples.hello_source import HelloSource
from examples.test_hello_source import TestHello, test_it_goes_on_counting_after_a_kill

from penstock.testing import FrameSuite, run_source

__all__ = ["TestHello", "test_it_goes_on_counting_after_a_kill"]


class TestFramesOfHello(FrameSuite, TestHello):
    pass


def test_it_greets_once_a_second() -> None:
    with run_source(HelloSource, {"topic": "greetings"}) as source:
        source.finish(1)

    assert HelloSource.idle_s == 1.0
    assert source.offset({"source": "kit"}) == {"count": 1}
    assert {one.topic for one in source.committed} == {"greetings"}
