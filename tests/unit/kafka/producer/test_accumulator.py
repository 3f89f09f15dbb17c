"""What is sent again, in which order and with which numbers; against a broker that is modelled here, too."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from tests.generated import examples

from penstock.kafka.producer.accumulator import REMEMBERED, PartitionQueue


@dataclass(eq=False)
class Batch:
    name: str
    count: int = 1
    created: float = 0.0
    sequence: int | None = None


def queue_of(*names: str) -> PartitionQueue[Batch]:
    queue: PartitionQueue[Batch] = PartitionQueue()
    for name in names:
        queue.add(Batch(name, count=10))
    return queue


def known(*names: str) -> PartitionQueue[Batch]:
    """A queue whose broker has stored one batch already."""
    queue = queue_of("first", *names)
    queue.send()
    queue.stored()
    return queue


def sent(queue: PartitionQueue[Batch], now: float = 100.0) -> list[tuple[str, int | None]]:
    """Sends all that may be sent."""
    found = []
    while queue.ready(now) is not None:
        batch = queue.send()
        found.append((batch.name, batch.sequence))
    return found


def test_numbers_count_records() -> None:
    assert sent(known("a", "b")) == [("a", 10), ("b", 20)]


def test_the_first_batch_of_a_producer_id_goes_alone() -> None:
    # A broker takes any number for it: one behind it must not come first.
    queue = queue_of("a", "b")
    assert sent(queue) == [("a", 0)]
    queue.stored()
    assert sent(queue) == [("b", 10)]


def test_no_more_is_under_way_than_a_broker_remembers() -> None:
    queue = known(*"abcdefgh")
    assert len(sent(queue)) == REMEMBERED
    queue.stored()
    assert len(sent(queue)) == 1


def test_what_is_put_off_comes_again_before_all_behind_it() -> None:
    queue = known("a", "b", "c", "d")
    first = [queue.send(), queue.send()]
    queue.not_now(retry_at=5.0)
    assert sent(queue) == [], "b is not answered yet"
    assert queue.out_of_sequence() is True
    assert sent(queue, now=4.9) == []
    assert sent(queue, now=5.0) == [("a", 10), ("b", 20)]
    assert [batch.name for batch in first] == ["a", "b"]
    assert [queue.stored(), queue.stored()] == first
    assert sent(queue, now=5.0) == [("c", 30), ("d", 40)]


def test_what_is_lost_keeps_its_numbers() -> None:
    queue = known("a", "b")
    sent(queue)
    queue.lost()
    assert sent(queue) == [("a", 10), ("b", 20)]


def test_nothing_new_goes_out_while_something_is_under_way_again() -> None:
    # A broker remembers five batches: it would take a sixth one's predecessor for a gap, though it has it.
    queue = known("a", "b", "c")
    queue.send()
    queue.not_now(retry_at=0.0)
    assert sent(queue) == [("a", 10)]
    queue.not_now(retry_at=0.0)
    assert sent(queue) == [("a", 10)]
    queue.stored()
    assert sent(queue) == [("b", 20), ("c", 30)]


def test_numbers_of_a_refused_batch_go_to_what_comes_next() -> None:
    queue = known("a", "b", "c")
    sent(queue)
    queue.stored()
    queue.refused()
    assert queue.out_of_sequence() is True
    assert sent(queue) == [("c", 20)]


def test_a_refused_batch_can_be_replaced_in_its_place() -> None:
    queue = known("a", "b")
    sent(queue)
    queue.refused([Batch("left half", 5), Batch("right half", 5)])
    assert queue.out_of_sequence() is True
    assert sent(queue) == [("left half", 10), ("right half", 15), ("b", 20)]


def test_what_was_put_off_before_a_refused_batch_keeps_its_number() -> None:
    queue = known("a", "b", "c")
    sent(queue)
    queue.not_now(retry_at=0.0)
    queue.refused()
    queue.lost()
    assert sent(queue) == [("a", 10)]
    queue.stored()
    assert sent(queue) == [("c", 20)]


def test_what_was_put_off_keeps_its_number_though_something_before_it_was_stored_and_something_behind_refused() -> None:
    queue = known("a", "b", "c", "d", "e")
    sent(queue)
    queue.not_now(retry_at=0.0)
    queue.stored()
    queue.not_now(retry_at=0.0)
    queue.refused()
    assert queue.out_of_sequence() is True
    assert sent(queue) == [("a", 10), ("c", 30)], "the numbers of b belong to b: the broker would take c for it"
    queue.stored()
    queue.stored()
    assert sent(queue) == [("e", 40)]


def test_what_is_refused_when_it_comes_again_may_be_stored() -> None:
    queue = known("a", "b")
    queue.send()
    assert queue.refused() is False
    queue.send()
    queue.lost()
    queue.send()
    assert queue.refused() is True


def test_a_gap_that_nothing_explains_asks_for_a_new_producer_id() -> None:
    queue = known("a", "b")
    sent(queue)
    assert queue.out_of_sequence() is False
    assert queue.out_of_sequence() is True
    queue.renumber()
    assert sent(queue) == [("a", 0)]
    queue.stored()
    assert sent(queue) == [("b", 10)]


def test_what_waits_too_long_is_given_up_and_may_be_in_kafka() -> None:
    queue: PartitionQueue[Batch] = PartitionQueue()
    for at in (1.0, 2.0, 3.0):
        queue.add(Batch(f"of {at}", created=at))
    assert queue.take_out(lambda batch: batch.created < 1.0) == ([], False)
    queue.send()
    queue.lost()
    taken, may_be_stored = queue.take_out(lambda batch: batch.created < 2.5)
    assert [batch.name for batch in taken] == ["of 1.0", "of 2.0"]
    assert may_be_stored
    taken, may_be_stored = queue.take_out()
    assert ([batch.name for batch in taken], may_be_stored) == (["of 3.0"], False)
    assert len(queue) == 0


def test_numbers_begin_again_behind_the_largest() -> None:
    queue: PartitionQueue[Batch] = PartitionQueue()
    queue.add(Batch("most", count=(1 << 31) - 1))
    queue.send()
    queue.stored()
    queue.add(Batch("over the end", count=3))
    queue.add(Batch("behind"))
    assert sent(queue) == [("over the end", (1 << 31) - 1), ("behind", 2)]


@dataclass
class ModelBroker:
    """Stores each number once and in order, and remembers the last five batches."""

    stored: list[str] = field(default_factory=list)
    remembered: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    next: int | None = None

    def take(self, batch: Batch) -> str:
        assert batch.sequence is not None
        place = (batch.sequence, batch.count)
        if place in self.remembered:
            return "duplicate"
        if self.next is not None and batch.sequence != self.next:
            return "out of sequence"
        self.next = batch.sequence + batch.count
        self.remembered.append(place)
        self.stored.append(batch.name)
        return "stored"

    def has(self, batch: Batch) -> bool:
        return (batch.sequence, batch.count) in self.remembered

    def forget(self) -> None:
        """What comes next has another producer id."""
        self.remembered.clear()
        self.next = None


EVENTS = st.lists(
    st.sampled_from(["send", "answer", "answer", "busy", "busy stored", "refuse", "split", "lose", "lose stored"])
)


@examples(40)
@given(counts=st.lists(st.integers(1, 4), max_size=12), events=EVENTS)
def test_every_batch_is_stored_once_and_in_order_whatever_happens(counts: list[int], events: list[str]) -> None:
    queue: PartitionQueue[Batch] = PartitionQueue()
    names = [f"{number}" for number in range(len(counts))]
    for name, count in zip(names, counts, strict=True):
        queue.add(Batch(name, count))
    broker = ModelBroker()
    wire: deque[Batch] = deque()
    refused: set[str] = set()
    renewals = [False]

    def answer(batch: Batch, event: str) -> None:
        # What is too large is refused before its number is looked at.
        if event in ("refuse", "split") and not broker.has(batch):
            parts = [Batch(batch.name, 1), Batch(batch.name, batch.count - 1)] if batch.count > 1 else []
            instead = parts if event == "split" else []
            if not instead:
                refused.add(batch.name)
            renewals[-1] |= queue.refused(instead)
        elif event.startswith("busy"):
            if event == "busy stored":
                broker.take(batch)
            queue.not_now(0.0)
        elif broker.take(batch) == "out of sequence":
            assert queue.out_of_sequence(), "no number is ever missing without a reason"
        else:
            queue.stored()

    for event in [*events, *["send", "answer"] * 100]:
        if renewals[-1] and not wire:
            queue.renumber()
            broker.forget()
            renewals.append(False)
        if event == "send" and not renewals[-1]:
            while queue.ready(1.0) is not None:
                wire.append(queue.send())
        elif event.startswith("lose"):
            for batch in wire if event == "lose stored" else ():
                broker.take(batch)
            wire.clear()
            queue.lost()
        elif wire:
            answer(wire.popleft(), event)
    assert len(queue) == 0
    in_order = [name for at, name in enumerate(broker.stored) if at == 0 or broker.stored[at - 1] != name]
    if len(renewals) > 1:
        # What may be stored already comes again then.
        in_order = list(dict.fromkeys(in_order))
    assert in_order == [name for name in names if name in set(in_order)]
    assert set(in_order) | refused == set(names)
