"""Who has a partition open, and how long another task waits for it."""

import threading

from testkit.doubles.contexts import ManualClock

from penstock.api import TopicPartition
from penstock.worker.sink.fetching import PartitionHolders

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_partition_is_taken_once_the_task_before_has_given_it_back() -> None:
    holders = PartitionHolders()
    first, second = holders.holder("g"), holders.holder("g")
    assert first.take([T0, T1], 0)
    assert not second.take([T1], 0)
    assert first.take([T0], 0), "what one holds does not keep oneself waiting"

    taken: list[bool] = []
    waiting = threading.Thread(target=lambda: taken.append(second.take([T1], 10)))
    waiting.start()
    first.give_back([T1])
    waiting.join(10)

    assert taken == [True]
    assert not first.take([T1], 0)
    assert not second.take([T0], 0)


def test_groups_have_nothing_to_do_with_each_other() -> None:
    holders = PartitionHolders()
    assert holders.holder("g").take([T0], 0)
    assert holders.holder("h").take([T0], 0)


def test_all_partitions_are_taken_or_none() -> None:
    holders = PartitionHolders()
    first, second, third = (holders.holder("g") for _ in range(3))
    assert first.take([T0], 0)
    assert not second.take([T0, T1], 0)
    assert third.take([T1], 0)


def test_a_task_that_ends_holds_nothing() -> None:
    holders = PartitionHolders()
    first, second = holders.holder("g"), holders.holder("g")
    assert first.take([T0, T1], 0)
    first.leave()
    assert second.take([T0, T1], 0)


def test_a_task_that_does_not_poll_is_waited_for_as_long_as_the_group_waits() -> None:
    clock = ManualClock()
    holders = PartitionHolders(clock)
    stuck, other = holders.holder("g", 60), holders.holder("g", 60)
    clock.now = 100
    stuck.polled()
    assert stuck.take([T0], 0)
    clock.now = 159
    assert not other.take([T0], 0)
    clock.now = 160
    assert other.take([T0], 0)

    other.polled()
    stuck.give_back([T0])
    assert not holders.holder("g").take([T0], 0), "what was taken over is not given back by who had it"


def test_who_has_waited_long_enough_goes_on() -> None:
    holders = PartitionHolders()
    first, second = holders.holder("g", 10), holders.holder("g", 10)
    assert first.take([T0], 0)
    assert second.patience_s == 9
    assert second.take([T0], 0, anyway=True)
    assert not first.take([T0], 0)
