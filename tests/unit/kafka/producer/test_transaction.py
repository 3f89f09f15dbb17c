"""The life of a producer's transactions, event by event, and in any order against a model of a coordinator."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

import pytest

from penstock.errors import (
    CommitOutcomeUnknownException,
    KafkaException,
    ProducerFencedException,
    TransactionAbortableException,
    TransactionalIdAuthorizationException,
)
from penstock.kafka.producer.transaction import (
    CONCURRENT_MOST_S,
    CONCURRENT_S,
    NO_IDENTITY,
    AddPartitions,
    FindCoordinator,
    Initialize,
    Question,
    Transaction,
    TransactionEnd,
    TransactionPhase,
)
from penstock.kafka.protocol import error_of

PLACE, OTHER = ("t", 0), ("t", 1)
LOADING, UNAVAILABLE, NOT_COORDINATOR, CONCURRENT = 14, 15, 16, 51
INVALID_EPOCH, INVALID_STATE, INVALID_MAPPING, NOT_ATTEMPTED, FENCED = 47, 48, 49, 55, 90
TOPIC_NOT_ALLOWED, ID_NOT_ALLOWED, ABORTABLE = 29, 53, 120


def ready(identity: tuple[int, int] = (7, 0)) -> Transaction:
    made = Transaction("tx")
    made.initialize()
    assert made.question(0) == FindCoordinator()
    made.found(0, 0)
    assert made.question(0) == Initialize(NO_IDENTITY)
    made.initialized(0, identity, 0)
    return made


def opened(*places: tuple[str, int]) -> Transaction:
    made = ready()
    made.begin(0.0)
    for place in places:
        assert not made.may_send(place)
    if places:
        assert made.question(0) == AddPartitions((7, 0), places)
        made.added(dict.fromkeys(places, 0), 0)
        assert all(made.may_send(place) for place in places)
    return made


# ------------------------------------------------------------------------------------------------------ the usual way
def test_a_transaction_is_begun_filled_and_committed() -> None:
    made = opened(PLACE)
    made.commit()
    assert made.question(0) == TransactionEnd((7, 0), commit=True)
    assert made.question(0) is None, "one question at a time"
    made.ended(0, 0)
    assert (made.phase, made.failure) == (TransactionPhase.READY, None)
    made.begin(0.0)
    assert not made.may_send(PLACE), "each transaction has partitions of its own"


def test_an_empty_transaction_ends_without_a_question() -> None:
    made = opened()
    made.commit()
    assert (made.phase, made.question(0)) == (TransactionPhase.READY, None)
    made.begin(0.0)
    made.abort(outstanding=False)
    assert (made.phase, made.question(0)) == (TransactionPhase.READY, None)


def test_partitions_are_added_together_and_those_that_come_later_too() -> None:
    made = opened(PLACE, OTHER)
    assert not made.may_send(("u", 3))
    assert made.question(0) == AddPartitions((7, 0), (("u", 3),))
    assert made.may_send(PLACE)
    assert not made.may_send(("u", 3))
    made.added({("u", 3): 0}, 0)
    assert made.may_send(("u", 3))


def test_an_abort_of_what_is_stored_keeps_the_epoch() -> None:
    made = opened(PLACE)
    made.abort(outstanding=False)
    assert made.question(0) == TransactionEnd((7, 0), commit=False)
    made.ended(0, 0)
    assert (made.phase, made.identity) == (TransactionPhase.READY, (7, 0))


def test_nothing_is_sent_before_there_is_an_identity() -> None:
    made = Transaction("tx")
    with pytest.raises(KafkaException, match="is new, and has to be open"):
        made.begin(0.0)
    assert not made.may_send(PLACE)


# ---------------------------------------------------------------------------------------------------- asking again
def test_a_busy_coordinator_is_asked_again_after_some_milliseconds() -> None:
    made = opened(PLACE)
    made.commit()
    waited, now = [], 0.0
    for _ in range(10):
        assert made.question(now) == TransactionEnd((7, 0), commit=True)
        made.ended(CONCURRENT, now)
        assert made.question(now) is None
        waited.append(made.retry_at - now)
        now = made.retry_at
    assert waited[0] == pytest.approx(CONCURRENT_S)
    assert waited[-1] == pytest.approx(CONCURRENT_MOST_S)
    made.question(now)
    made.ended(0, now)
    assert made.phase is TransactionPhase.READY


@pytest.mark.parametrize("code", [NOT_COORDINATOR, UNAVAILABLE])
def test_a_coordinator_that_has_moved_is_looked_for(code: int) -> None:
    made = opened(PLACE)
    made.commit()
    made.question(0)
    made.ended(code, 0)
    now = made.retry_at
    assert now > 0
    assert made.question(now) == FindCoordinator()
    made.found(UNAVAILABLE, now)
    assert made.question(made.retry_at) == FindCoordinator()
    made.found(0, now)
    assert made.question(now + 9) == TransactionEnd((7, 0), commit=True)


def test_a_coordinator_that_is_loading_is_asked_again_itself() -> None:
    made = Transaction("tx")
    made.initialize()
    made.question(0)
    made.found(0, 0)
    made.question(0)
    made.initialized(LOADING, (-1, -1), 0)
    assert made.question(made.retry_at) == Initialize(NO_IDENTITY)


def test_a_commit_whose_answer_got_lost_is_asked_for_again_until_it_is_answered() -> None:
    made = opened(PLACE)
    made.commit()
    made.question(0)
    made.lost(0)
    made.commit()
    assert made.question(1) == FindCoordinator()
    made.found(0, 1)
    assert made.question(1) == TransactionEnd((7, 0), commit=True)
    made.ended(0, 1)
    assert (made.phase, made.failure) == (TransactionPhase.READY, None)


# ------------------------------------------------------------------------------------------------------------ failures
@pytest.mark.parametrize("code", [INVALID_EPOCH, FENCED])
def test_whoever_is_fenced_is_told_and_asks_nothing_more(code: int) -> None:
    made = opened(PLACE)
    made.commit()
    made.question(0)
    made.ended(code, 0)
    assert isinstance(made.failure, ProducerFencedException)
    assert made.fatal
    assert made.question(99) is None
    for use in (lambda: made.begin(0.0), made.commit, lambda: made.abort(outstanding=False)):
        with pytest.raises(ProducerFencedException, match="another producer has the id"):
            use()


@pytest.mark.parametrize("code", [FENCED, INVALID_STATE])
def test_after_a_lost_answer_a_refusal_does_not_tell_whether_it_was_committed(code: int) -> None:
    made = opened(PLACE)
    made.commit()
    made.question(0)
    made.lost(0)
    made.question(1)
    made.found(0, 1)
    made.question(1)
    made.ended(code, 1)
    with pytest.raises(CommitOutcomeUnknownException, match="the answer to the commit got lost"):
        made.commit()


def test_a_commit_under_way_cannot_be_aborted() -> None:
    made = opened(PLACE)
    made.commit()
    with pytest.raises(CommitOutcomeUnknownException, match="Commit it again"):
        made.abort(outstanding=False)


@pytest.mark.parametrize("code", [TOPIC_NOT_ALLOWED, ABORTABLE, INVALID_MAPPING, INVALID_STATE])
def test_what_only_the_transaction_dies_of_is_aborted_with_a_new_epoch(code: int) -> None:
    made = opened(PLACE)
    made.may_send(OTHER)
    made.question(0)
    made.added({OTHER: code}, 0)
    with pytest.raises(TransactionAbortableException, match=error_of(code).name):
        made.commit()
    assert not made.may_send(PLACE)
    made.abort(outstanding=False)
    assert made.question(0) == AddPartitions((7, 0), (PLACE,))
    made.added({PLACE: 0}, 0)
    assert made.question(0) == Initialize((7, 0))
    made.initialized(0, (7, 1), 0)
    assert (made.phase, made.identity, made.failure) == (TransactionPhase.READY, (7, 1), None)


def test_a_right_to_the_id_that_is_missing_is_named() -> None:
    made = Transaction("tx")
    made.initialize()
    made.question(0)
    made.found(ID_NOT_ALLOWED, 0)
    assert isinstance(made.failure, TransactionalIdAuthorizationException)
    assert "WRITE and DESCRIBE on TransactionalId tx" in str(made.failure)


def test_of_several_partitions_the_one_that_is_refused_counts() -> None:
    made = ready()
    made.begin(0.0)
    made.may_send(PLACE)
    made.may_send(OTHER)
    made.question(0)
    made.added({PLACE: NOT_ATTEMPTED, OTHER: TOPIC_NOT_ALLOWED}, 0)
    assert isinstance(made.failure, TransactionAbortableException)
    assert "TOPIC_AUTHORIZATION_FAILED" in str(made.failure)


# --------------------------------------------------------------------------------------------------------- new epochs
def renewing() -> Transaction:
    """One that takes a new epoch, and has been told that its transaction is its own."""
    made = opened(PLACE)
    made.abort(outstanding=True)
    assert made.question(0) == AddPartitions((7, 0), (PLACE,))
    made.added({PLACE: 0}, 0)
    return made


def test_an_abort_with_answers_outstanding_takes_a_new_epoch() -> None:
    made = renewing()
    assert made.question(0) == Initialize((7, 0))
    made.initialized(CONCURRENT, NO_IDENTITY, 0)
    assert made.question(made.retry_at) == Initialize((7, 0))
    made.initialized(0, (7, 1), 1)
    assert (made.phase, made.identity) == (TransactionPhase.READY, (7, 1))


def test_where_the_coordinator_does_not_remember_the_old_epoch_the_one_of_its_abort_is_tried() -> None:
    made = renewing()
    made.question(0)
    made.initialized(FENCED, NO_IDENTITY, 0)
    assert made.question(0) == Initialize((7, 1))
    made.initialized(0, (7, 2), 0)
    assert (made.phase, made.identity) == (TransactionPhase.READY, (7, 2))


@pytest.mark.parametrize("code", [INVALID_EPOCH, FENCED])
def test_who_was_replaced_does_not_ask_for_an_epoch_and_so_ends_nothing_of_its_successor(code: int) -> None:
    made = opened(PLACE)
    made.abort(outstanding=True)
    made.question(0)
    made.added({PLACE: CONCURRENT}, 0)
    assert made.question(made.retry_at) == AddPartitions((7, 0), (PLACE,))
    made.added({PLACE: code}, 1)
    assert isinstance(made.failure, ProducerFencedException)
    assert made.question(9) is None


def test_whoever_has_taken_over_meanwhile_is_not_fenced_by_an_abort() -> None:
    made = renewing()
    for identity in ((7, 0), (7, 1)):
        assert made.question(0) == Initialize(identity)
        made.initialized(FENCED, NO_IDENTITY, 0)
    assert isinstance(made.failure, ProducerFencedException)


def test_without_a_transaction_that_was_surely_open_no_other_epoch_is_tried() -> None:
    made = opened()
    made.may_send(PLACE)
    made.question(0)
    made.abort(outstanding=False)
    made.lost(0)
    made.question(1)
    made.found(0, 1)
    assert made.question(1) == AddPartitions((7, 0), (PLACE,))
    made.added({PLACE: TOPIC_NOT_ALLOWED}, 1)
    assert made.question(1) == Initialize((7, 0))
    made.initialized(FENCED, NO_IDENTITY, 1)
    assert isinstance(made.failure, ProducerFencedException)


def test_after_a_question_that_may_come_late_the_next_transaction_has_a_new_epoch() -> None:
    made = opened(PLACE)
    made.commit()
    made.question(0)
    made.lost(0)
    made.question(1)
    made.found(0, 1)
    made.question(1)
    made.ended(0, 1)
    assert made.phase is TransactionPhase.READY, "the commit has come about"
    made.begin(0.0)
    assert not made.may_send(PLACE)
    assert made.question(1) == Initialize((7, 0))
    made.initialized(0, (7, 1), 1)
    assert made.question(1) == AddPartitions((7, 1), (PLACE,))
    made.added({PLACE: 0}, 1)
    assert made.may_send(PLACE)
    made.commit()
    made.question(1)
    made.ended(0, 1)
    assert made.question(1) is None, "once"


def test_a_batch_that_may_be_stored_makes_the_transaction_one_to_be_aborted() -> None:
    made = opened(PLACE)
    made.fail(error_of(7), new_epoch=True)
    with pytest.raises(TransactionAbortableException, match="REQUEST_TIMED_OUT"):
        made.commit()
    made.abort(outstanding=False)
    assert made.question(0) == AddPartitions((7, 0), (PLACE,))


# ------------------------------------------------------------------------------------------------- events in any order
@dataclass
class Log:
    """A partition: what is open and what counts, with the number of the transaction that each record is of."""

    epoch: int = -1
    open: list[int] = field(default_factory=list)
    visible: list[int] = field(default_factory=list)


class Coordinator:
    """A coordinator with its partitions, as brokers since 3.0 have it (old) and as those of 4.0 (new)."""

    def __init__(self, *, new: bool) -> None:
        self.new = new
        self.epoch, self.last = -1, -1
        self.added: set[tuple[str, int]] = set()
        self.state = "empty"
        self.commits: list[int] = []
        self.ending: tuple[bool, int] | None = None
        self.logs = {PLACE: Log(), OTHER: Log()}

    def produce(self, place: tuple[str, int], epoch: int, number: int) -> int:
        log = self.logs[place]
        if epoch < log.epoch:
            return INVALID_EPOCH
        if self.state != "ongoing" or place not in self.added or epoch != self.epoch:
            # Since 3.6 brokers look whether the transaction is open.
            return INVALID_STATE
        log.epoch = epoch
        log.open.append(number)
        return 0

    def late(self, place: tuple[str, int], epoch: int, number: int) -> bool:
        """A batch that was looked at before, and is only written now, if at all."""
        log = self.logs[place]
        if epoch < log.epoch:
            return False
        log.epoch = epoch
        log.open.append(number)
        return True

    def initialize(self, identity: tuple[int, int]) -> tuple[int, tuple[int, int]]:
        if self.ending is not None:
            return CONCURRENT, NO_IDENTITY
        expected = identity[1]
        if self.state == "ongoing":
            # Whoever asks: an epoch is not looked at here.
            self.end_by_itself()
            return CONCURRENT, NO_IDENTITY
        if expected == -1 or expected == self.epoch:
            self.last = self.epoch if expected != -1 else -1
            self.epoch += 1
        elif expected != self.last:
            return FENCED, NO_IDENTITY
        return 0, (7, self.epoch)

    def end_by_itself(self) -> None:
        """Abort what is open, with a higher epoch."""
        self.last = self.epoch if self.new else -1
        self.epoch += 1
        self.ending = (False, self.epoch)

    def add(self, identity: tuple[int, int], places: tuple[tuple[str, int], ...]) -> Mapping[tuple[str, int], int]:
        code = FENCED if identity[1] != self.epoch else CONCURRENT if self.ending else 0
        if not code:
            self.state = "ongoing"
            self.added |= set(places)
        return dict.fromkeys(places, code)

    def end(self, identity: tuple[int, int], commit: bool) -> int:
        if identity[1] != self.epoch:
            return FENCED
        if self.ending is not None:
            return CONCURRENT if self.ending[0] is commit else INVALID_STATE
        if self.state == "ongoing":
            self.ending = (commit, self.epoch)
            return 0
        return 0 if self.state == ("committed" if commit else "aborted") else INVALID_STATE

    def finish(self) -> None:
        """Write the markers."""
        if self.ending is None:
            return
        commit, epoch = self.ending
        self.ending = None
        self.state = "committed" if commit else "aborted"
        for place in self.added:
            log = self.logs[place]
            log.epoch = max(log.epoch, epoch)
            if commit:
                log.visible += log.open
            log.open.clear()
        self.added.clear()


class World:
    """A producer, its coordinator, what is on its way between them, and chance."""

    def __init__(self, seed: int, *, new: bool) -> None:
        self.random = random.Random(seed)
        self.coordinator = Coordinator(new=new)
        self.made = Transaction("tx", 0.001, 0.001)
        self.made.initialize()
        self.now = 0.0
        self.number = 0
        self.numbers = count(1)
        self.late: list[tuple[tuple[str, int], int, int]] = []
        self.late_questions: list[Question] = []
        self.committed: list[int] = []
        self.aborted: list[int] = []
        self.unknown: list[int] = []
        self.sent: dict[int, int] = {}
        self.taken_over = False
        self.before_takeover = 0

    def step(self) -> None:
        self.now += 1.0
        chance = self.random.random()
        if chance < 0.45:
            self.ask()
        elif chance < 0.6:
            self.coordinator.finish()
        elif chance < 0.85:
            self.send()
        elif chance < 0.93:
            self.commit()
        elif chance < 0.97:
            self.abort()
        elif chance < 0.98 and self.late:
            late = self.late.pop(self.random.randrange(len(self.late)))
            if self.coordinator.late(*late):
                self.sent[late[2]] = self.sent.get(late[2], 0) + 1
        elif chance < 0.983 and self.late_questions:
            # Nobody waits for the answer any more.
            self.answer(self.late_questions.pop(self.random.randrange(len(self.late_questions))), told=False)
        elif chance < 0.987 and self._is_open() and not self.taken_over:
            self.coordinator.end_by_itself()

    def _is_open(self) -> bool:
        return self.coordinator.state == "ongoing" and self.coordinator.ending is None

    def ask(self) -> None:
        question = self.made.question(self.now)
        if question is None:
            return
        fate = self.random.random()
        if fate < 0.1:
            if fate < 0.07:
                self.late_questions.append(question)
            self.made.lost(self.now)
            return
        self.answer(question, told=fate >= 0.2)
        if fate < 0.2:
            self.made.lost(self.now)
        self.settle()

    def answer(self, question: Question, *, told: bool) -> None:
        """The coordinator is asked."""
        lost = not told
        match question:
            case FindCoordinator():
                if not lost:
                    self.made.found(self.random.choice([0, 0, 0, UNAVAILABLE]), self.now)
            case Initialize(identity):
                code, found = self.coordinator.initialize(identity)
                if not lost:
                    self.made.initialized(code, found, self.now)
            case AddPartitions(identity, places):
                codes = self.coordinator.add(identity, places)
                if not lost:
                    self.made.added(codes, self.now)
            case TransactionEnd(identity, commit):
                code = self.coordinator.end(identity, commit)
                if not lost:
                    self.made.ended(code, self.now)

    def settle(self) -> None:
        """Note how the transaction under way has ended."""
        if self.made.phase is TransactionPhase.READY and self.number:
            (self.aborted if self.number < 0 else self.committed).append(abs(self.number))
            self.number = 0
        if self.made.fatal and self.number:
            if isinstance(self.made.failure, CommitOutcomeUnknownException):
                self.unknown.append(abs(self.number))
            else:
                self.aborted.append(abs(self.number))
            self.number = 0

    def send(self) -> None:
        if (
            self.number < 0
            or self.made.phase not in (TransactionPhase.READY, TransactionPhase.OPEN)
            or self.made.failure is not None
        ):
            return
        if not self.number:
            self.number = next(self.numbers)
        self.made.begin(0.0)
        place = self.random.choice([PLACE, OTHER])
        if not self.made.may_send(place):
            return
        assert self.made.identity is not None
        epoch = self.made.identity[1]
        if self.random.random() < 0.15 and self.coordinator.epoch == epoch and place in self.coordinator.added:
            # It is on its way when the producer gives up waiting for it.
            self.late.append((place, epoch, self.number))
            return
        code = self.coordinator.produce(place, epoch, self.number)
        if code:
            self.made.fail(error_of(code), new_epoch=True)
        else:
            self.sent[self.number] = self.sent.get(self.number, 0) + 1

    def commit(self) -> None:
        if self.number <= 0 or any(number == self.number for _, _, number in self.late):
            return
        try:
            self.made.commit()
        except (TransactionAbortableException, KafkaException):
            return
        self.settle()

    def abort(self) -> None:
        if self.number <= 0:
            return
        try:
            self.made.abort(outstanding=any(number == self.number for _, _, number in self.late))
        except (CommitOutcomeUnknownException, ProducerFencedException):
            return
        self.number = -self.number
        self.settle()

    def take_over(self) -> None:
        """Another producer with the same id, which has no trouble at all."""
        for _ in range(10):
            code, identity = self.coordinator.initialize(NO_IDENTITY)
            if code == 0:
                self.successor = identity
                self.taken_over = True
                self.coordinator.add(identity, (OTHER,))
                return
            assert code == CONCURRENT
            self.coordinator.finish()
        raise AssertionError("nobody can take over")


@pytest.mark.parametrize("new", [False, True], ids=["old coordinator", "new coordinator"])
@pytest.mark.parametrize("seed", range(150))
def test_whatever_happens_a_transaction_counts_whole_or_not_at_all(seed: int, new: bool) -> None:
    world = World(seed, new=new)
    for _ in range(400):
        world.step()
    takes_over = seed % 3 == 0
    if takes_over:
        # A question for an epoch that is on its way already would end what is open, whoever has opened it.
        asks = world.made.phase is TransactionPhase.RENEWING and world.made._probe is None
        asks = asks or world.made._renews or any(isinstance(one, Initialize) for one in world.late_questions)
        world.take_over()
        before = list(world.committed)
    for _ in range(400):
        world.step()
    for late in world.late:
        world.coordinator.late(*late)
    world.coordinator.finish()

    visible = [number for log in world.coordinator.logs.values() for number in log.visible]
    for number in world.committed:
        assert visible.count(number) == world.sent.get(number, 0), f"{number} was committed"
    for number in world.aborted:
        assert number not in visible, f"{number} was aborted"
    for number in world.unknown:
        assert visible.count(number) in (0, world.sent.get(number, 0))
    if takes_over:
        if not asks:
            assert world.coordinator.epoch == world.successor[1], "nobody fences who has taken over"
        empty = {number for number in world.committed if not world.sent.get(number)}
        assert set(world.committed) - set(before) - empty <= set(visible)


@pytest.mark.parametrize("new", [False, True], ids=["old coordinator", "new coordinator"])
def test_events_in_any_order_come_to_all_ends(new: bool) -> None:
    ends = {"committed": 0, "aborted": 0, "fatal": 0, "renewed": 0}
    for seed in range(150):
        world = World(seed, new=new)
        for _ in range(400):
            world.step()
        ends["committed"] += len(world.committed)
        ends["aborted"] += len(world.aborted)
        ends["fatal"] += world.made.fatal
        ends["renewed"] += (world.made.identity or (0, 0))[1] > 0
    assert min(ends["committed"], ends["aborted"], ends["renewed"]) > 100, ends
    assert ends["fatal"] < 130, ends


def test_a_transaction_that_is_open_for_too_long_is_given_up_whatever_the_coordinator_says() -> None:
    made = Transaction("tx", timeout_s=60.0)
    made.phase, made.identity = TransactionPhase.READY, (7, 0)
    assert not made.expire(1000.0), "nothing is open"
    made.begin(100.0)
    assert made.retry_at == 160.0, "it has to be looked at then"
    assert not made.expire(159.9)
    made.begin(159.9)
    assert made.expire(160.0)
    assert not made.expire(170.0), "once"
    with pytest.raises(
        TransactionAbortableException, match=r"open for longer than transaction\.timeout\.ms allows, 60 s"
    ):
        made.commit()
    made.abort(outstanding=False)
    assert made.failure is None


def test_a_transaction_whose_commit_was_asked_for_is_not_given_up() -> None:
    made = opened(PLACE)
    made._over_at = 60.0
    made.commit()
    assert not made.expire(61.0)
