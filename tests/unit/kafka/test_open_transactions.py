"""What is found out about open transactions, and which are ended, with brokers that answer as a test says."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from testkit.brokers.scripted_broker import ScriptedBroker
from testkit.brokers.scripted_transactions import Known, Open, ScriptedTransactions

from penstock.kafka.open_transactions import (
    ActiveProducer,
    OpenTransaction,
    OpenTransactions,
    TransactionDescription,
    TransactionVerdict,
    judge,
    marker_epoch,
)
from penstock.kafka.protocol import Api
from penstock.kafka.settings.client import producer_settings
from penstock.kafka.settings.producer import ColumnSettings

NOW_MS = 10_000_000.0
OLD, YOUNG = 0, int(NOW_MS) - 1000
PLACE = ("offsets", 0)


class Rig:
    """A broker, and who looks at it for the group ``g``."""

    def __init__(self, broker: ScriptedBroker, group: str = "g") -> None:
        self.broker = broker
        self.now = 100.0
        self.state = broker.transactions = ScriptedTransactions(port=broker.port)
        client = producer_settings({"bootstrap.servers": broker.bootstrap}, {}, client_id="test")
        self.looker = OpenTransactions(
            ColumnSettings.of(client), group, "offsets log", clock=self.clock, wall_ms=lambda: NOW_MS
        )

    def clock(self) -> float:
        # Looks are over in no time; what a test lets pass is added.
        self.now += 0.0001
        return self.now

    def look(self) -> str | None:
        return self.looker.look([PLACE])


@pytest.fixture
def rig() -> Iterator[Rig]:
    with ScriptedBroker({"offsets": 1, "data": 2}) as broker:
        yield Rig(broker)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]


# ---------------------------------------------------------------- the decision
def opened(epoch: int = 3) -> OpenTransaction:
    return OpenTransaction(PLACE, ActiveProducer(5, epoch, 0, -1, 7))


def described(state: str = "Empty", **own: object) -> TransactionDescription:
    values = {"producer_id": 5, "epoch": 4, "places": frozenset(), "error_code": 0, **own}
    return TransactionDescription(transactional_id="g-a-0", state=state, timeout_ms=1000, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("state", ["Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"])
def test_one_that_its_coordinator_has_is_under_way_however_old(state: str) -> None:
    assert judge(opened(), described(state, places=frozenset({PLACE})), 1e12) is TransactionVerdict.UNDER_WAY


@pytest.mark.parametrize(
    "found",
    [
        described("Empty"),
        described("CompleteCommit"),
        described("CompleteAbort"),
        described("Dead"),
        described("Ongoing", places=frozenset({("data", 0)})),
        described("PrepareCommit", places=frozenset({("data", 0)})),
        described("Ongoing", places=frozenset({PLACE}), producer_id=6),
    ],
)
def test_one_that_its_coordinator_does_not_have_hangs_once_it_is_older_than_its_timeout(
    found: TransactionDescription,
) -> None:
    assert judge(opened(), found, 999) is TransactionVerdict.YOUNG
    assert judge(opened(), found, 1000) is TransactionVerdict.HANGING


@pytest.mark.parametrize("found", [None, described("", error_code=105)])
def test_one_that_no_coordinator_knows_hangs_after_the_longest_timeout_that_brokers_allow(
    found: TransactionDescription | None,
) -> None:
    assert judge(opened(), found, 899_999) is TransactionVerdict.YOUNG
    assert judge(opened(), found, 900_000) is TransactionVerdict.HANGING


@pytest.mark.parametrize("found", [described("", error_code=14), described("", error_code=53), described("Unknown")])
def test_nothing_is_decided_where_the_coordinator_does_not_say(found: TransactionDescription) -> None:
    assert judge(opened(), found, 1e12) is TransactionVerdict.UNKNOWN


@pytest.mark.parametrize(
    ("found", "epoch"),
    [
        (described(epoch=4), 3),
        (described(epoch=3), 4),
        (described(epoch=0, producer_id=6), 3),
        (described(epoch=32767), 3),
    ],
)
def test_a_marker_has_an_epoch_that_no_live_producer_has(found: TransactionDescription, epoch: int) -> None:
    assert marker_epoch(opened().producer, found) == epoch


@pytest.mark.parametrize(
    ("group", "name", "own"),
    [
        ("connect", "connect-orders-0", True),
        ("connect", "connect-cluster-connect", True),
        ("connect", "connect-cluster-prod", False),
        ("connect", "connector-0", False),
        ("connect-cluster", "connect-cluster-orders-0", True),
        ("prod", "connect-cluster-prod", True),
        ("prod", "prod", False),
    ],
)
def test_which_ids_are_a_groups_own(rig: Rig, group: str, name: str, own: bool) -> None:
    assert Rig(rig.broker, group).looker.is_own(name) is own


# ---------------------------------------------------------------- looks
def test_where_nothing_is_open_nothing_is_said(rig: Rig) -> None:
    assert rig.look() is None
    assert rig.state.asked == [Api.DESCRIBE_PRODUCERS]


def test_a_hanging_one_of_the_group_is_aborted_in_all_partitions_that_hold_it(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.state.opened = [
        Open("offsets", 0, 5, epoch=3, coordinator_epoch=9),
        Open("data", 1, 5, epoch=3),
        Open("data", 0, 8, epoch=3),
    ]
    rig.state.known = [Known("g-a-0", 5, "CompleteCommit", epoch=4), Known("g-b-0", 8, "Ongoing", places=[("data", 0)])]
    assert rig.look() is None
    assert sorted(rig.state.markers) == [("data", 1, 5, 3, 0), ("offsets", 0, 5, 3, 9)]
    assert [one.producer_id for one in rig.state.opened] == [8]
    (told,) = warnings(caplog)
    assert "a transaction of g-a-0 (producer id 5) was hanging" in told
    assert "offsets-0 from offset 7" in told
    assert "data-1 from offset 7" in told
    assert "(CompleteCommit)" in told


def test_one_of_a_producer_that_may_live_is_ended_with_a_newer_epoch_so_that_it_begins_anew(rig: Rig) -> None:
    rig.state.opened = [Open("offsets", 0, 5, epoch=3)]
    rig.state.known = [Known("g-a-0", 5, epoch=3)]
    assert rig.look() is None
    assert rig.state.markers == [("offsets", 0, 5, 4, 0)]


def test_a_partition_that_a_later_transaction_has_reached_meanwhile_is_left_alone(rig: Rig) -> None:
    rig.state.opened = [Open("offsets", 0, 5), Open("data", 0, 5)]
    rig.state.known = [Known("g-a-0", 5, "Ongoing", places=[("data", 0)])]
    assert rig.look() is None
    assert rig.state.markers == [("offsets", 0, 5, 0, 0)]


def test_one_that_ends_by_itself_between_two_questions_is_not_ended_twice(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.state.opened = [Open("offsets", 0, 5)]
    rig.state.known = [Known("g-a-0", 5)]

    def before(api: Api) -> None:
        if rig.state.asked.count(Api.DESCRIBE_TRANSACTIONS) == 2:
            rig.state.opened = [Open("offsets", 0, 5, start_offset=100)]

    rig.state.before = before
    assert rig.look() is None
    assert rig.state.markers == []
    assert warnings(caplog) == []


def test_one_of_the_group_that_is_young_is_waited_for_and_ended_when_it_was_watched_for_long_enough(rig: Rig) -> None:
    rig.state.opened = [Open("offsets", 0, 5, last_timestamp_ms=YOUNG)]
    rig.state.known = [Known("g-a-0", 5, timeout_ms=60_000)]
    told = rig.look()
    assert told is not None
    assert "producer id 5 (epoch 0) that is open in offsets-0 from offset 7" in told
    assert "taken for a hanging one when it has been open for 60 s" in told
    rig.now += 61
    assert rig.look() is None
    assert len(rig.state.markers) == 1


def test_a_strangers_is_named_with_its_command(rig: Rig) -> None:
    rig.state.opened = [Open("offsets", 0, 5)]
    rig.state.known = [Known("other-a-0", 5)]
    told = rig.look()
    assert told is not None
    assert "producer id 5" in told
    assert "transactional id other-a-0" in told
    command = f"kafka-transactions.sh --bootstrap-server {rig.broker.bootstrap} abort --topic offsets --partition 0"
    assert f"{command} --start-offset 7" in told
    assert rig.state.markers == []


def test_one_whose_id_nobody_may_see_is_named_too(rig: Rig) -> None:
    rig.state.opened = [Open("offsets", 0, 5)]
    told = rig.look()
    assert told is not None
    assert "no transactional id that this user may see has it" in told
    assert "abort --topic offsets --partition 0 --start-offset 7" in told
    assert rig.state.markers == []


@pytest.mark.parametrize("code", [29, 31])
def test_where_the_rights_lack_the_command_is_named(rig: Rig, code: int, caplog: pytest.LogCaptureFixture) -> None:
    rig.state.opened = [Open("offsets", 0, 5)]
    rig.state.known = [Known("g-a-0", 5)]
    rig.state.errors[Api.WRITE_TXN_MARKERS] = code
    told = rig.look()
    assert told is not None
    assert "grant it ALTER on the cluster" in told
    assert "abort --topic offsets --partition 0 --start-offset 7" in told
    assert warnings(caplog) == []


def test_where_even_looking_is_not_allowed_that_is_said(rig: Rig) -> None:
    rig.state.opened = [Open("offsets", 0, 5)]
    rig.state.errors[Api.DESCRIBE_PRODUCERS] = 29
    told = rig.look()
    assert told is not None
    assert "a transaction may be open in offsets-0" in told
    assert "grant it READ on the topic" in told


@pytest.mark.parametrize(
    ("api", "code"),
    [(Api.LIST_TRANSACTIONS, 14), (Api.DESCRIBE_TRANSACTIONS, 16), (Api.FIND_COORDINATOR, 15)],
)
def test_nothing_is_ended_while_a_coordinator_cannot_tell(rig: Rig, api: Api, code: int) -> None:
    rig.state.opened = [Open("offsets", 0, 5)]
    rig.state.known = [Known("g-a-0", 5)]
    rig.state.errors[api] = code
    rig.look()
    assert rig.state.markers == []
    del rig.state.errors[api]
    assert rig.look() is None
    assert len(rig.state.markers) == 1


def test_a_broker_that_knows_no_such_questions_is_asked_once(rig: Rig) -> None:
    rig.broker.transactions = None
    assert rig.look() is None
    asked = len(rig.broker.requests)
    assert rig.look() is None
    assert len(rig.broker.requests) == asked


def test_a_broker_that_is_away_is_no_error(rig: Rig) -> None:
    rig.broker.stop()
    rig.looker._clock = iter(range(0, 10_000, 3)).__next__
    assert rig.look() is None


def test_several_partitions_of_one_transaction_are_one_sentence(rig: Rig) -> None:
    rig.state.opened = [Open("data", 0, 5), Open("data", 1, 5, start_offset=9)]
    told = rig.looker.look([("data", 0), ("data", 1)])
    assert told is not None
    assert "data-0 from offset 7, data-1 from offset 9" in told
    assert told.count("kafka-transactions.sh") == 2
