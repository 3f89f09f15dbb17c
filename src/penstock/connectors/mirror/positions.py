"""The start positions of a partition: initially, and after its offset was deleted. Pure; any thread.

Main type: ``Start``. Main function: ``after_loss``.
"""

from __future__ import annotations

from enum import Enum

from penstock.api import TopicPartition
from penstock.errors import ConfigException


class Start(Enum):
    """The first position of a partition that was not mirrored before, as the client takes it."""

    EARLIEST = -2
    LATEST = -1

    @classmethod
    def of(cls, text: str) -> Start:
        """By ``auto.offset.reset`` of the source's consumer.

        Raises:
            ConfigException: It is neither ``earliest`` nor ``latest``.
        """
        try:
            return cls[text.strip().upper()]
        except KeyError:
            raise ConfigException("source.consumer.auto.offset.reset", text, "It must be earliest or latest") from None

    @property
    def position(self) -> int:
        """The position for an offset, as the client takes it."""
        return int(self.value)


def after_loss(place: TopicPartition, position: int, low: int, high: int) -> tuple[int, str]:
    """The position from which to resume in a partition without a record at its position, and a text for people.

    No record is skipped: if the end is before the position, all records may be new.

    Args:
        place: The partition.
        position: The lost position.
        low: The offset of its first record.
        high: The offset after its last record.

    >>> after_loss(TopicPartition("t", 0), 5, 9, 20)
    (9, 't-0 has no records before offset 9 any more: 4 were deleted before they could be mirrored, from offset 5 on')
    """
    if position < low:
        lost = f"{low - position} were deleted before they could be mirrored, from offset {position} on"
        return low, f"{place} has no records before offset {low} any more: {lost}"
    return low, (
        f"{place} ends at offset {high}, and was mirrored up to {position}: the topic was made again, or its brokers "
        "have lost records. It is mirrored from its beginning"
    )
