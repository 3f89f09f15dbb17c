"""Tests of the greeting, of which the kit has most."""

from examples.hello_source import HelloSource

from penstock.testing import SourceSuite, run_source


class TestHello(SourceSuite):
    connector = HelloSource
    count = 5  # The first greetings; there is no end of them.
    ends = False
    tasks_max = 1

    def prepare(self, path):
        return {"topic": "greetings"}


def test_it_goes_on_counting_after_a_kill():
    with run_source(HelloSource, {"topic": "greetings"}) as source:
        source.poll()
        source.commit()
        source.poll()
        source.kill()  # The second greeting was not committed: it is made again.
        source.finish(3)

    assert source.values == ["hello 1", "hello 2", "hello 3"]
