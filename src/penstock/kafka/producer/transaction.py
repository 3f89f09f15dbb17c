"""A producer's transactions: their state machine, the requests to their coordinator, and the fencing of producers.

Only one request is in flight at a time. If a batch may still be in flight, an abort first requests a new epoch: the
coordinator aborts with it, and partitions reject late batches with the old epoch, which could otherwise become part of
the next transaction. A request for a new epoch aborts any open transaction, even a successor's. So the producer first
checks that the transaction is still its own, by adding a partition once more, which fails if there is a successor. The
coordinator raises the epoch for the abort already, and only newer coordinators remember the epoch before that: if a
coordinator rejects our epoch then, the producer tries the next one. No other producer can have that epoch while our
transaction was open, because a successor gets an epoch that is two higher.

A request without a response may reach a frozen coordinator much later, when the next transaction is open, and end that
transaction. So after such a transaction the producer requests a new epoch, which makes the late request fail.

Source: KIP-98, KIP-360, KIP-890; TransactionManager of Kafka's producer, TransactionCoordinator of its brokers;
Admin.fenceProducers (KIP-618), Worker.fenceZombies of Kafka Connect.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from penstock.errors import (
    CommitOutcomeUnknownException,
    KafkaException,
    KafkaRetriableException,
    ProducerFencedException,
    TransactionAbortableException,
    TransactionalIdAuthorizationException,
)
from penstock.kafka.network.connections import ProducerConnections
from penstock.kafka.network.transport import Link, LinkLostException
from penstock.kafka.protocol import (
    ADD_PARTITIONS,
    END_TRANSACTION,
    FIND_COORDINATOR,
    INIT_TRANSACTIONS,
    BrokerEndpoint,
    ErrorKind,
    Place,
    by_place,
    by_topic,
    error_of,
    find_coordinator_request,
    request,
    response,
)
from penstock.kafka.settings.client import producer_settings
from penstock.kafka.settings.producer import ColumnSettings

NO_IDENTITY: Final = (-1, -1)
#: The wait before a coordinator that is busy with the previous transaction gets another request, at first and at most.
CONCURRENT_S: Final = 0.002
CONCURRENT_MOST_S: Final = 0.05

_NONE: Final = 0
_NOT_COORDINATOR: Final = frozenset({15, 16})
_CONCURRENT: Final = 51
_INVALID_MAPPING: Final = 49
_NOT_ATTEMPTED: Final = 55
_NOT_ALLOWED: Final = 53
_ABORTABLE: Final = 120
_FENCED: Final = frozenset({47, 90})
#: Errors after which the transaction can be aborted, and another one begun.
_TO_BE_ABORTED: Final = frozenset({29, 48, _INVALID_MAPPING, _ABORTABLE})


class TransactionPhase(Enum):
    """The phases of a producer."""

    NEW = auto()
    """The producer has no identity."""
    INITIALIZING = auto()
    """The producer has requested an identity."""
    READY = auto()
    """No transaction is open."""
    OPEN = auto()
    """Records may be sent."""
    COMMITTING = auto()
    """The producer has requested the commit."""
    ABORTING = auto()
    """The producer has requested the abort."""
    RENEWING = auto()
    """The producer has requested a new epoch, which aborts the open transaction."""


@dataclass(frozen=True)
class FindCoordinator:
    """A request for the broker that coordinates the transactional id; any broker can answer."""


@dataclass(frozen=True)
class Initialize:
    """A request for a producer identity in place of this one."""

    identity: tuple[int, int]


@dataclass(frozen=True)
class AddPartitions:
    """A request to add partitions to the transaction."""

    identity: tuple[int, int]
    places: tuple[Place, ...]


@dataclass(frozen=True)
class TransactionEnd:
    """A request to commit or abort the transaction."""

    identity: tuple[int, int]
    commit: bool


Question = FindCoordinator | Initialize | AddPartitions | TransactionEnd


class Transaction:
    """The transactions of one producer, one after the other.

    Args:
        backoff_s, backoff_most_s: The wait before the next request to a coordinator that cannot answer; doubled each
            time up to the second value.

    Attributes:
        identity: Producer id and epoch; None as long as there are none.
        failure: The reason why the open transaction, or the producer, cannot continue; None if it can.
        fatal: True if the failure ends the producer.
        has_coordinator: True if the coordinating broker is known.
    """

    def __init__(
        self,
        transactional_id: str,
        backoff_s: float = 0.1,
        backoff_most_s: float = 1.0,
        *,
        timeout_s: float = float("inf"),
    ) -> None:
        self.id = transactional_id
        self.timeout_s = timeout_s
        #: The time at which the coordinator ends the open transaction.
        self._over_at = float("inf")
        self._backoff_s = backoff_s
        self._backoff_most_s = backoff_most_s
        self.phase = TransactionPhase.NEW
        self.identity: tuple[int, int] | None = None
        self.failure: KafkaException | None = None
        self.fatal = False
        self.has_coordinator = False
        self._under_way: Question | None = None
        self._not_before = float("-inf")
        self._attempts = 0
        self._added: set[Place] = set()
        self._wanted: dict[Place, None] = {}
        #: True if an unanswered request may have taken effect.
        self._unsure = False
        self._needs_epoch = False
        #: Epochs to try in turn while a new one is requested, and the partition to add once more before that.
        self._known_epochs: list[tuple[int, int]] = []
        self._probe: Place | None = None
        #: True if a request of this transaction may still reach the coordinator; and True if an earlier one may, so
        #: that a new epoch comes first.
        self._late = self._renews = False

    # ---------------------------------------------------------------- calls of the producer
    def initialize(self) -> None:
        """Requests an identity, which fences older instances."""
        self._expect(TransactionPhase.NEW)
        self._go_to(TransactionPhase.INITIALIZING)

    def begin(self, now: float) -> None:
        """Begins a transaction for a record to send."""
        if self.failure is not None:
            raise self.failure
        if self.phase is TransactionPhase.READY:
            self._go_to(TransactionPhase.OPEN)
            self._over_at = now + self.timeout_s
        self._expect(TransactionPhase.OPEN)

    def may_send(self, place: Place) -> bool:
        """True if a partition is part of the open transaction; otherwise it will be added."""
        if self.failure is not None or self.phase is not TransactionPhase.OPEN:
            return False
        if place in self._added:
            return True
        # It is added after the new epoch, if one comes first.
        self._wanted.setdefault(place)
        return False

    def commit(self) -> None:
        """Requests the commit; all records must be stored. A second call before the answer has no effect."""
        if self.failure is not None:
            raise self.failure
        if self.phase in (TransactionPhase.READY, TransactionPhase.COMMITTING):
            return
        self._expect(TransactionPhase.OPEN)
        self._go_to(TransactionPhase.COMMITTING if self._added else TransactionPhase.READY)

    def abort(self, *, outstanding: bool) -> None:
        """Requests the abort of the transaction.

        Args:
            outstanding: True if a batch may still be in flight to a broker.

        Raises:
            KafkaException: the producer has ended, or the outcome of a commit is unknown.
        """
        self.check_abort()
        if self.phase in (TransactionPhase.ABORTING, TransactionPhase.RENEWING):
            return
        if self.phase not in (TransactionPhase.OPEN, TransactionPhase.COMMITTING):
            self._expect(TransactionPhase.READY)
            return
        self.failure = None
        # A request to add a partition that got no answer may have succeeded.
        asked = isinstance(self._under_way, AddPartitions) or self._unsure
        if outstanding or self._needs_epoch or asked:
            assert self.identity is not None
            self._known_epochs = [self.identity]
            self._probe = next(iter((*self._added, *self._wanted)), None)
            self._go_to(TransactionPhase.RENEWING)
        else:
            self._go_to(TransactionPhase.ABORTING if self._added else TransactionPhase.READY)

    def check_abort(self) -> None:
        """Checks that the transaction may be aborted. Raises ``KafkaException`` if the producer has ended, or the
        outcome of a commit is unknown.
        """
        if self.fatal and self.failure is not None:
            raise self.failure
        if self.phase is TransactionPhase.COMMITTING and not isinstance(self.failure, TransactionAbortableException):
            raise CommitOutcomeUnknownException(
                f"The transaction of {self.id} cannot be aborted: whether it was committed is not known yet. Commit "
                "it again"
            )

    def fail(self, kind: ErrorKind, *, new_epoch: bool) -> None:
        """Notes that a batch is lost, or may be: the transaction cannot be committed.

        Args:
            new_epoch: True if the batch may be stored nevertheless, or the broker rejects the epoch.
        """
        self._needs_epoch = self._needs_epoch or new_epoch
        if self.failure is None:
            self.failure = TransactionAbortableException(
                f"{self._what()} cannot be committed: {kind.text} ({kind.name})"
            )

    def expire(self, now: float) -> bool:
        """True if the open transaction has just exceeded its timeout: the coordinator ends it."""
        if self.phase is not TransactionPhase.OPEN or self.failure is not None or now < self._over_at:
            return False
        self._needs_epoch = True
        self.failure = TransactionAbortableException(
            f"{self._what()} cannot be committed: it was open for longer than transaction.timeout.ms allows, "
            f"{self.timeout_s:g} s"
        )
        return True

    # ---------------------------------------------------------------- requests for the owner
    def question(self, now: float) -> Question | None:
        """Returns the next request to send, if any; it counts as in flight."""
        if self._under_way is not None or now < self._not_before:
            return None
        wanted = self._next()
        if wanted is not None and not self.has_coordinator:
            wanted = FindCoordinator()
        self._under_way = wanted
        return wanted

    @property
    def retry_at(self) -> float:
        """The time to look again for a request, or for expiry (monotonic seconds); infinity for never."""
        waiting = self._under_way is None and self._next() is not None
        open_until = self._over_at if self.phase is TransactionPhase.OPEN and self.failure is None else float("inf")
        return min(open_until, self._not_before if waiting else float("inf"))

    def _next(self) -> Question | None:
        if self.fatal:
            return None
        if self.phase is TransactionPhase.INITIALIZING:
            return Initialize(NO_IDENTITY)
        if self.identity is None:
            return None
        if self.phase is TransactionPhase.RENEWING:
            if self._probe is not None:
                return AddPartitions(self.identity, (self._probe,))
            return Initialize(self._known_epochs[0])
        if self._renews and self.phase in (TransactionPhase.READY, TransactionPhase.OPEN):
            return Initialize(self.identity)
        if self.phase in (TransactionPhase.COMMITTING, TransactionPhase.ABORTING) and self.failure is None:
            return TransactionEnd(self.identity, self.phase is TransactionPhase.COMMITTING)
        if self.phase is TransactionPhase.OPEN and self._wanted and self.failure is None:
            return AddPartitions(self.identity, tuple(self._wanted))
        return None

    def lost(self, now: float) -> None:
        """Handles a request that gets no answer, because the connection is lost or there is none."""
        question, self._under_way = self._under_way, None
        # It is unknown if the coordinator has executed the request.
        self._unsure = self._unsure or isinstance(question, TransactionEnd | AddPartitions)
        self._late = self._late or self._unsure
        self.has_coordinator = False
        self._wait(now)

    def found(self, error_code: int, now: float) -> None:
        self._under_way = None
        if error_code == _NONE:
            self.has_coordinator = True
        elif error_of(error_code).retriable:
            self._wait(now)
        else:
            self._end(error_code)

    def initialized(self, error_code: int, identity: tuple[int, int], now: float) -> None:
        self._under_way = None
        if error_code == _NONE:
            self.identity = identity
            self._late = self._renews = False
            if self.phase is not TransactionPhase.OPEN:
                self._go_to(TransactionPhase.READY)
        elif not self._again(error_code, now):
            if error_code in _FENCED and len(self._known_epochs) > 1:
                del self._known_epochs[0]
            else:
                self._end(error_code)

    def added(self, error_codes: Mapping[Place, int], now: float) -> None:
        question, self._under_way = self._under_way, None
        if not isinstance(question, AddPartitions) or self.phase not in (
            TransactionPhase.OPEN,
            TransactionPhase.RENEWING,
        ):
            return
        codes = {error_codes.get(place, -1) for place in question.places} - {_NOT_ATTEMPTED}
        faults = codes - {_NONE}
        if not faults and codes:
            self._attempts = 0
            self._unsure = False
            for place in question.places:
                self._added.add(place)
                self._wanted.pop(place, None)
            if self.phase is TransactionPhase.RENEWING:
                self._is_ours()
            return
        code = next(iter(sorted(faults, key=lambda one: (one in _FENCED, not error_of(one).retriable))[-1:]), -1)
        if self._again(code, now):
            return
        if self.phase is TransactionPhase.RENEWING and code not in _FENCED:
            # An error of the partition does not show which producer has the id.
            self._probe = None
        else:
            self._end(code)

    def ended(self, error_code: int, now: float) -> None:
        self._under_way = None
        if error_code == _NONE:
            self._go_to(TransactionPhase.READY)
        elif self._again(error_code, now):
            return
        elif self.phase is TransactionPhase.COMMITTING and self._unsure and error_code != _NOT_ALLOWED:
            self.fatal = True
            self.failure = CommitOutcomeUnknownException(
                f"Whether the transaction of {self.id} was committed is not known: the answer to the commit got lost, "
                f"and now the coordinator says {error_of(error_code).name}. Another producer has taken over: what was "
                "committed is found by reading"
            )
        else:
            self._end(error_code)

    # ---------------------------------------------------------------- inside
    def _is_ours(self) -> None:
        """Notes, before it requests a new epoch, that the open transaction is this producer's own."""
        assert self.identity is not None
        producer_id, epoch = self.identity
        self._known_epochs = [self.identity, (producer_id, epoch + 1)]
        self._probe = None

    def _again(self, error_code: int, now: float) -> bool:
        """Handles an error if it is temporary; returns True if the request will be repeated later."""
        if error_code == _CONCURRENT:
            wait = min(CONCURRENT_MOST_S, CONCURRENT_S * 2.0 ** min(self._attempts, 10))
            self._attempts += 1
            self._not_before = now + wait
            return True
        if not error_of(error_code).retriable:
            return False
        if error_code in _NOT_COORDINATOR:
            self.has_coordinator = False
        self._wait(now)
        return True

    def _wait(self, now: float) -> None:
        self._not_before = now + min(self._backoff_most_s, self._backoff_s * 2.0 ** min(self._attempts, 10))
        self._attempts += 1

    def _go_to(self, phase: TransactionPhase) -> None:
        self.phase = phase
        self._attempts = 0
        self._not_before = float("-inf")
        if phase is TransactionPhase.READY:
            self._renews = self._renews or self._late
            self._late = False
            self.failure = None
            self._added.clear()
            self._needs_epoch = False
            self._known_epochs = []
        if phase in (TransactionPhase.READY, TransactionPhase.COMMITTING):
            self._unsure = False
            self._wanted.clear()

    def _end(self, error_code: int) -> None:
        """Handles a permanent error: the transaction, or the producer, has failed."""
        kind = error_of(error_code)
        if error_code in _TO_BE_ABORTED and self.phase in (TransactionPhase.OPEN, TransactionPhase.COMMITTING):
            self.fail(kind, new_epoch=True)
            return
        self.fatal = True
        if error_code == _NOT_ALLOWED:
            self.failure = TransactionalIdAuthorizationException(
                f"The user may not use the transactional id {self.id}: it needs an ACL that allows WRITE and DESCRIBE "
                f"on TransactionalId {self.id} (kafka-acls.sh --add --producer --transactional-id {self.id})"
            )
        elif error_code in _FENCED:
            self.failure = ProducerFencedException(
                f"{self._what()} was ended by another client: another producer has the id, or transaction.timeout.ms "
                f"was over ({kind.name})"
            )
        else:
            self.failure = KafkaException(f"{self._what()} cannot go on: {kind.text} ({kind.name})")

    def _what(self) -> str:
        return f"The transaction of {self.id}"

    def _expect(self, phase: TransactionPhase) -> None:
        if self.phase is not phase:
            raise KafkaException(
                f"The producer of {self.id} is {self.phase.name.lower()}, and has to be {phase.name.lower()} for that"
            )


NEEDS: Final = (FIND_COORDINATOR, INIT_TRANSACTIONS, ADD_PARTITIONS, END_TRANSACTION)


class Coordinator:
    """The coordinator of one transactional id."""

    def __init__(
        self,
        transaction: Transaction,
        connections: ProducerConnections,
        state: threading.Condition,
        clock: Callable[[], float],
    ) -> None:
        self._transaction = transaction
        self._connections = connections
        self._state = state
        self._clock = clock
        self._address: BrokerEndpoint | None = None

    def step(self, now: float, known: Mapping[int, BrokerEndpoint]) -> None:
        with self._state:
            if now < self._transaction.retry_at:
                return
            # Do not take a request that cannot be sent now.
            if self._transaction.has_coordinator and self._address is not None:
                link = self._connections.to(self._address, now)
            else:
                link = self._connections.any(now, known)
            if link is None or not link.usable:
                self._given_up_on(link)
                return
            question = self._transaction.question(now)
        if question is not None:
            self._ask(link, question)

    def _given_up_on(self, link: Link | None) -> None:
        """Makes the transaction look for its coordinator again if the known coordinator cannot be reached."""
        if link is None and self._transaction.has_coordinator:
            self._transaction.has_coordinator = False

    def _ask(self, link: Link, question: Question) -> None:
        transaction, own = self._transaction, self._transaction.id
        answered: Callable[[list[Any], float], None]
        match question:
            case FindCoordinator():
                asked = find_coordinator_request(own)
                answered = self._found
            case Initialize(identity):
                asked = request(INIT_TRANSACTIONS, own, round(transaction.timeout_s * 1000), *identity)
                answered = lambda found, now: transaction.initialized(found[1], (found[2], found[3]), now)  # noqa: E731
            case AddPartitions(identity, places):
                asked = request(ADD_PARTITIONS, own, *identity, by_topic(places))
                answered = lambda found, now: transaction.added(by_place(found[1]), now)  # noqa: E731
            case TransactionEnd(identity, commit):
                asked = request(END_TRANSACTION, own, *identity, commit)
                answered = lambda found, now: transaction.ended(found[1], now)  # noqa: E731

        def take(payload: memoryview) -> None:
            found = response(asked.message, payload)
            if not isinstance(question, AddPartitions):
                self._tell(found[1])
            self._change(lambda: answered(found, self._clock()))

        self._connections.ask(link, asked, take, self._lost)

    def _found(self, found: list[Any], now: float) -> None:
        _, code, _, _, host, port = found
        self._address = BrokerEndpoint(host, port)
        self._transaction.found(code, now)

    def _lost(self, _: LinkLostException) -> None:
        self._change(lambda: self._transaction.lost(self._clock()))

    def _change(self, change: Callable[[], None]) -> None:
        with self._state:
            change()
            self._state.notify_all()

    def _tell(self, code: int) -> None:
        kind = error_of(code)
        if code and kind.retriable and kind.name != "CONCURRENT_TRANSACTIONS":
            self._connections.warn(
                kind.name, ": the coordinator of its transactions says %s; the producer asks again", kind.name
            )


#: The number of ids that are fenced at a time.
AT_A_TIME: Final = 8


Fenced = tuple[int, int] | KafkaException


def fence_producers(
    settings: ColumnSettings,
    transactional_ids: Iterable[str],
    timeout_s: float,
    *,
    name: str = "fencing",
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Fenced]:
    """Fences the producers that use these transactional ids. Returns for each id a new, unused producer id and epoch;
    or the reason why it could not be fenced: `TransactionalIdAuthorizationException` if the user has no right to it,
    `KafkaRetriableException` if the timeout expired.
    """
    waiting = deque(dict.fromkeys(transactional_ids))
    found: dict[str, Fenced] = {}
    if not waiting:
        return found
    deadline = clock() + timeout_s
    state = threading.Condition()
    connections = ProducerConnections(settings, name, NEEDS, clock, _nothing)
    asked: dict[str, tuple[Transaction, Coordinator]] = {}
    try:
        while (waiting or asked) and clock() < deadline and connections.fatal is None:
            while waiting and len(asked) < AT_A_TIME:
                one = waiting.popleft()
                transaction = Transaction(
                    one, settings.retry_backoff, settings.retry_backoff_max, timeout_s=settings.transaction_timeout
                )
                transaction.initialize()
                asked[one] = transaction, Coordinator(transaction, connections, state, clock)
            now = clock()
            connections.tend(now)
            for _, coordinator in asked.values():
                coordinator.step(now, {})
            times = connections.times(now, waiting=True)
            times += [at for transaction, _ in asked.values() if (at := transaction.retry_at) > now]
            connections.wait(min([deadline, *times]) - now)
            _collect(asked, found)
        for one in (*asked, *waiting):
            found[one] = connections.fatal or KafkaRetriableException(
                f"The producer of the transactional id {one} was not fenced within {timeout_s:g} s: "
                f"{connections.trouble or 'its coordinator has not answered'}"
            )
    finally:
        connections.close()
    return found


def _collect(asked: dict[str, tuple[Transaction, Coordinator]], found: dict[str, Fenced]) -> None:
    """Moves the ids that are fenced, or failed permanently, from ``asked`` to ``found``."""
    for one, (transaction, _) in list(asked.items()):
        if transaction.phase is TransactionPhase.READY and transaction.identity is not None:
            found[one] = transaction.identity
        elif transaction.failure is not None:
            found[one] = transaction.failure
        else:
            continue
        del asked[one]


def _nothing() -> None:
    pass


def failed(fenced: Mapping[str, Fenced]) -> dict[str, KafkaException]:
    """The error of each id that could not be fenced."""
    return {one: result for one, result in fenced.items() if isinstance(result, KafkaException)}


#: The default timeout of Kafka's admin client for one call.
_TIMEOUT_S: Final = 60.0


def fence_zombies(
    worker: Mapping[str, str], connector: str, config: Mapping[str, str], ids: Sequence[str]
) -> dict[str, KafkaException]:
    """Fences the producers of a connector with these transactional ids. Returns the error of each id that could not be
    fenced.
    """
    # The connector's producers may use another cluster than the worker's; their ids belong to that cluster.
    client = producer_settings(worker, config, client_id=f"connector-fencing-{connector}")
    return failed(fence_producers(ColumnSettings.of(client), ids, _TIMEOUT_S, name=f"{connector} (fencing)"))
