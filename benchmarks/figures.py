"""What samples and times mean: pure functions, no clock, no I/O.

Main functions: `steady_rate`, `percentile`, `median`.
"""

from __future__ import annotations

from collections.abc import Sequence

Sample = tuple[float, int]


def steady_rate(samples: Sequence[Sample], total: int, cut: float = 0.2) -> float:
    """Records a second after the first part is cut.

    Args:
        samples: (seconds, records there), both rising.
        total: how many records there are in the end.
        cut: the share of the records at the start that does not count.

    Returns:
        Records a second from the moment `cut * total` records were there until `total` were; times between two
        samples are interpolated.

    Raises:
        ValueError: the samples do not reach `total`.

    >>> steady_rate([(0.0, 0), (1.0, 20), (2.0, 60), (3.0, 100)], 100)
    40.0
    """
    start, end = _moment(samples, cut * total), _moment(samples, total)
    return (1 - cut) * total / (end - start) if end > start else float("inf")


def _moment(samples: Sequence[Sample], count: float) -> float:
    before: Sample | None = None
    for moment, seen in samples:
        if seen >= count:
            if before is None or seen == before[1]:
                return moment
            share = (count - before[1]) / (seen - before[1])
            return before[0] + share * (moment - before[0])
        before = (moment, seen)
    raise ValueError(f"the samples end at {before[1] if before else 0} of {count:.0f} records")


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed.

    >>> percentile([4.0, 1.0, 3.0, 2.0], 0.5)
    2.0
    """
    ordered = sorted(values)
    index = max(0, -(-len(ordered) * share // 1) - 1)
    return ordered[int(index)]


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two in the middle.

    >>> median([3.0, 1.0, 2.0])
    2.0
    """
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
