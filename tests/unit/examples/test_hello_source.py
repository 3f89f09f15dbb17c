"""The hello-world source of the documentation, by the tests of the documentation, which its page runs as they are."""

from __future__ import annotations

from examples.hello_source import HelloSource
from examples.test_hello_source import TestHello as Documented
from tests.shares import QUICK

from penstock.testing import FrameSuite, run_source


class TestFramesOfHello(FrameSuite, Documented):
    most_kills = 5 if QUICK else 16


def test_it_greets_once_a_second() -> None:
    with run_source(HelloSource, {"topic": "greetings"}) as source:
        source.finish(1)

    assert HelloSource.idle_s == 1.0
    assert source.offset({"source": "kit"}) == {"count": 1}
    assert {one.topic for one in source.committed} == {"greetings"}
