"""``ConnectorUtils``: divides a list among tasks.

Owning thread: none; pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class ConnectorUtils:
    """Helpers for ``task_configs``. Source: org.apache.kafka.connect.util.ConnectorUtils."""

    @staticmethod
    def group_partitions(elements: Sequence[T], num_groups: int) -> list[list[T]]:
        """Divides elements into groups of nearly equal size, in order; the first groups are the larger ones.

        Groups are empty when there are fewer elements than groups: give ``min(len(elements), max_tasks)`` groups to
        have no idle tasks.

        Raises:
            ValueError: Less than one group is asked for.

        >>> ConnectorUtils.group_partitions([1, 2, 3, 4, 5], 3)
        [[1, 2], [3, 4], [5]]
        >>> ConnectorUtils.group_partitions([1], 2)
        [[1], []]
        """
        if num_groups <= 0:
            raise ValueError("Number of groups must be positive.")
        size, larger = divmod(len(elements), num_groups)
        groups: list[list[T]] = []
        start = 0
        for group in range(num_groups):
            end = start + size + (1 if group < larger else 0)
            groups.append(list(elements[start:end]))
            start = end
        return groups
