"""Decisions about the ranges of a bulk sink, without I/O: the open ranges, the check of a plan, the progress of a job.

Main functions: ``open_ranges``, ``checked_plan``, ``told_ranges``. Values; any thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.api import TopicPartition
from penstock.api.bulk import TopicRange
from penstock.errors import ConnectException
from penstock.model.progress import Progress


def open_ranges(
    positions: Mapping[TopicPartition, int], begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> list[TopicRange]:
    """The messages that are not written yet, as one range for each partition that has some.

    Args:
        positions: The next offset of each partition.
        begins: The offset of the first message that each partition still has.
        ends: The offset after the last message of each.

    >>> at = TopicPartition("t", 0)
    >>> open_ranges({at: 5}, {at: 7}, {at: 9})
    [TopicRange(topic='t', partition=0, start=7, end=9, attempt='')]
    >>> open_ranges({at: 9}, {at: 7}, {at: 9})
    []
    """
    found = [
        TopicRange(*place, max(position, begins.get(place, position)), ends[place])
        for place, position in positions.items()
        if place in ends
    ]
    return sorted(one for one in found if one.start < one.end)


def checked_plan(given: Sequence[TopicRange], planned: object, task: str) -> list[TopicRange]:
    """Returns the ranges that a task has planned, in order.

    Args:
        given: The ranges that it was given.
        planned: Its answer.
        task: Its class, for messages.

    Raises:
        ConnectException: The answer is not a list of ranges that follow each other, starting at the first offsets.

    >>> whole = TopicRange("t", 0, 5, 9)
    >>> checked_plan([whole], [TopicRange("t", 0, 5, 7)], "Task")
    [TopicRange(topic='t', partition=0, start=5, end=7, attempt='')]
    >>> checked_plan([whole], [TopicRange("t", 0, 6, 9)], "Task")
    Traceback (most recent call last):
    penstock.errors.ConnectException: plan() of Task has returned t-0 from 6 to 9, and there is t-0 from 5 to 9: the \
ranges of a partition follow each other, without a gap, from the first offset that it was given
    """
    if not isinstance(planned, Sequence) or not all(isinstance(one, TopicRange) for one in planned):
        raise ConnectException(f"plan() of {task} must return a sequence of TopicRange, got {planned!r}")
    wholes = {one.place: one for one in given}
    next_of = {place: one.start for place, one in wholes.items()}
    found = sorted(planned)
    for one in found:
        whole = wholes.get(one.place)
        if whole is None:
            raise ConnectException(f"plan() of {task} has returned {_text(one)}, of which it was given nothing")
        if one.start != next_of[one.place] or not one.start < one.end <= whole.end:
            raise ConnectException(
                f"plan() of {task} has returned {_text(one)}, and there is {_text(whole)}: the ranges of a partition "
                "follow each other, without a gap, from the first offset that it was given"
            )
        next_of[one.place] = one.end
    return found


def ends_of_ranges(ranges: Sequence[TopicRange]) -> dict[TopicPartition, int]:
    """The offset after the last range of each partition."""
    found: dict[TopicPartition, int] = {}
    for one in ranges:
        found[one.place] = max(one.end, found.get(one.place, 0))
    return found


def told_ranges(done: int, ranges: Sequence[TopicRange], seconds: float) -> Progress:
    """The progress of a job.

    Args:
        done: The number of its written ranges.
        ranges: All of them.
        seconds: Its running time.

    >>> ranges = [TopicRange("t", 0, at, at + 100_000) for at in range(0, 400_000, 100_000)]
    >>> told_ranges(2, ranges, 10.0).text
    'up to 400,000 messages of 1 partition, some 10 s left'
    """
    places = len({one.place for one in ranges})
    messages = sum(one.end - one.start for one in ranges)
    text = f"up to {messages:,} messages of {places} partition{'' if places == 1 else 's'}"
    if done and seconds > 0:
        text += f", some {(len(ranges) - done) * seconds / done:.0f} s left"
    return Progress(done, len(ranges), "ranges", text)


def _text(one: TopicRange) -> str:
    return f"{one.topic}-{one.partition} from {one.start} to {one.end}"
