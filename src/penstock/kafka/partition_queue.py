"""The record batches for one topic partition, in order, and the sequence numbers that make sending them again safe.

Main types: `PartitionQueue` and `Numbered`, what it needs of a batch.

A batch keeps its sequence number as long as nobody knows what became of it: the broker has stored it or not, and drops
it when it comes again. Only where the broker has refused a batch, so that certainly neither it nor anything behind it
was stored, are its numbers given to what comes next. While some of what was sent is to be sent again, nothing new is
sent until everything that is under way has been answered, so that the order is kept (Invariant 3). Nor is anything new
sent while something is under way for the second time: the broker would forget the numbers that tell whether it has it.

Thread: none; belongs to the thread that owns the producer. No I/O.

Source: KIP-98 (idempotent producer: sequence numbers), KIP-360 (a new producer id after an unexpected sequence).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

#: How many batches of one producer and partition a broker knows by their numbers.
REMEMBERED: Final = 5
_NUMBERS: Final = 1 << 31


class Numbered(Protocol):
    """A record batch as the queue sees it.

    Attributes:
        count: How many records it has.
        created: When it was made (monotonic seconds).
        sequence: Number of its first record; None until it is sent.
    """

    created: float
    sequence: int | None

    @property
    def count(self) -> int:
        """How many records it has; each takes a sequence number."""


B = TypeVar("B", bound=Numbered)


class PartitionQueue(Generic[B]):
    """What waits for one topic partition and what is under way to it.

    Args:
        most: how many batches may be under way.

    Attributes:
        retry_at: Not before this time (monotonic seconds) is anything sent.
        attempts: How often in a row something could not be stored for now.
    """

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most = most
        self.retry_at = 0.0
        self.attempts = 0
        self._waiting: deque[B] = deque()
        self._under_way: deque[B] = deque()
        self._again: list[B] = []
        #: How many under way were sent before; they are the first.
        self._repeated = 0
        self._freed: int | None = None
        #: How many of those to be sent again were before the one whose numbers are free, and keep theirs.
        self._before_freed = 0
        self._next = 0
        # Whether the broker has stored anything of the present producer id: it takes any number for the first batch.
        self._known = False

    def __len__(self) -> int:
        return len(self._waiting) + len(self._under_way) + len(self._again)

    @property
    def under_way(self) -> int:
        """How many batches have no answer yet."""
        return len(self._under_way)

    @property
    def unsettled(self) -> bool:
        """Whether anything was sent of which nobody knows whether it is stored."""
        waiting = self.head
        return bool(self._under_way or self._again or (waiting is not None and waiting.sequence is not None))

    @property
    def head(self) -> B | None:
        """The first batch that waits, if any."""
        return self._waiting[0] if self._waiting else None

    def add(self, batch: B) -> None:
        """A batch that comes behind all others."""
        self._waiting.append(batch)

    def ready(self, now: float) -> B | None:
        """The batch that may be sent now, if any."""
        settling = self._again or self._freed is not None
        if not self._waiting or settling or now < self.retry_at:
            return None
        if len(self._under_way) >= (self._most if self._known else 1):
            return None
        if self._repeated and self._waiting[0].sequence is None:
            return None
        return self._waiting[0]

    def send(self) -> B:
        """Take the batch that is ready; it has its sequence number from now on."""
        batch = self._waiting.popleft()
        if batch.sequence is None:
            batch.sequence = self._next
            self._next = (self._next + batch.count) % _NUMBERS
        else:
            self._repeated += 1
        self._under_way.append(batch)
        return batch

    # ---------------------------------------------------------------- answers, in the order of sending
    def stored(self) -> B:
        """The first batch under way is in Kafka."""
        self._known = True
        self.attempts = 0
        batch = self._pop()
        self._settle()
        return batch

    def not_now(self, retry_at: float) -> None:
        """The first batch under way may be stored later: it is sent again with the number it has."""
        # What is behind it in the same round is no further attempt.
        self.attempts += not self._again
        self._again.append(self._pop())
        self.retry_at = max(self.retry_at, retry_at)
        self._settle()

    def out_of_sequence(self) -> bool:
        """The broker misses something before the first batch under way, which is sent again.

        Returns:
            Whether that was to be expected: something before it is to be sent again, or was refused. If not, the
            broker's numbers are not ours any more, and a new producer id is needed.
        """
        expected = bool(self._again) or self._freed is not None
        self._again.append(self._pop())
        self._settle()
        return expected

    def refused(self, instead: Iterable[B] = ()) -> bool:
        """The first batch under way will never be stored; others, without numbers, may take its place.

        Returns:
            Whether it may be in Kafka all the same, since it was sent before. Its numbers would make what comes next
            look as if it was stored already, so a new producer id is needed.
        """
        sent_before = self._repeated > 0
        batch = self._pop()
        if self._freed is None:
            self._freed = batch.sequence
            self._before_freed = len(self._again)
        self._again += instead
        self._settle()
        return sent_before

    def lost(self) -> None:
        """Nobody knows what became of anything under way: it is sent again with the numbers it has."""
        self._again += self._under_way
        self._under_way.clear()
        self._repeated = 0
        self._settle()

    # ---------------------------------------------------------------- what concerns all partitions
    def renumber(self) -> None:
        """There is a new producer id: numbers begin at 0. Only while nothing is under way."""
        assert not self._under_way
        for batch in self._waiting:
            batch.sequence = None
        self._next = 0
        self._known = False

    def take_out(self, which: Callable[[B], bool] = lambda batch: True) -> tuple[list[B], bool]:
        """Give up what waits, up to the first batch that is not such.

        Returns:
            The batches, and whether one of them may be in Kafka all the same, so that a new producer id is needed.
        """
        taken: list[B] = []
        while self._waiting and which(self._waiting[0]):
            taken.append(self._waiting.popleft())
        return taken, any(batch.sequence is not None for batch in taken)

    def _pop(self) -> B:
        self._repeated = max(0, self._repeated - 1)
        return self._under_way.popleft()

    def _settle(self) -> None:
        """Once everything is answered, what is to be sent again comes first."""
        if self._under_way:
            return
        self._waiting.extendleft(reversed(self._again))
        self._again = []
        if self._freed is not None:
            for batch in islice(self._waiting, self._before_freed, None):
                batch.sequence = None
            self._next = self._freed
            self._freed = None
