"""The log in memory follows the rules that the log of a topic follows."""

import pytest
from testkit.doubles.memory_log import MemoryLog, MemoryTopic
from testkit.doubles.record_log_rules import RULES


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("partitions", [1, 5])
def test_rules(rule, partitions):
    topic = MemoryTopic(partitions)

    rule(lambda: MemoryLog(topic))


def test_a_compaction_keeps_the_newest_record_of_each_key():
    topic = MemoryTopic()
    for key, value in ((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", None)):
        topic.append(key, value)

    topic.compact()

    assert [(record.offset, record.key, record.value) for record in topic.partitions[0]] == [(2, b"a", b"2")]
