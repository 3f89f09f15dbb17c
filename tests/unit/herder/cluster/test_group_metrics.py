"""What a worker knows of its group, as metrics."""

import pytest

from penstock.api import SampleWindow
from penstock.herder.cluster.connect_protocol import Subprotocol
from penstock.herder.cluster.group_metrics import RoundCounts, publish_member, publish_rounds
from penstock.herder.cluster.member import GroupPlace
from penstock.kafka.group.session import GroupMetrics, Timed
from penstock.model import ConnectorTaskId
from penstock.model.states import Units
from penstock.telemetry import Metrics
from penstock.telemetry.metrics import metrics_text

IN = GroupPlace(
    "me",
    7,
    Subprotocol.SESSIONED,
    "her",
    "http://her:8083/",
    12,
    Units.of(["a"], [ConnectorTaskId("a", 0), ConnectorTaskId("b", 1)]),
)


@pytest.fixture
def clock():
    return [50.0]


def shown(metrics):
    return [line for line in metrics_text(metrics.read()).splitlines() if not line.startswith("#")]


def test_rounds_have_the_names_and_values_of_kafka_connect(clock):
    metrics, place = Metrics(), IN
    rounds = RoundCounts(lambda: clock[0], SampleWindow())
    publish_rounds(metrics, lambda: place, rounds)
    rounds.begins()
    rounds.ends(7)
    clock[0] += 2
    rounds.in_force(7)
    rounds.begins()
    clock[0] += 1

    prefix = "kafka_connect_worker_rebalance_"
    assert shown(metrics) == [
        f"{prefix}completed_rebalances_total 1",
        f'{prefix}connect_protocol{{connect_protocol="SESSIONED"}} 1',
        f"{prefix}epoch 7",
        f'{prefix}leader_name{{leader_name="http://her:8083/"}} 1',
        f"{prefix}rebalance_avg_time_ms 2000",
        f"{prefix}rebalance_max_time_ms 2000",
        f"{prefix}rebalancing 1",
        f"{prefix}time_since_last_rebalance_ms 1000",
    ]


def test_before_the_first_round_no_leader_and_no_protocol_is_named(clock):
    metrics = Metrics()
    publish_rounds(metrics, GroupPlace, RoundCounts(lambda: clock[0], SampleWindow()))

    prefix = "kafka_connect_worker_rebalance_"
    assert shown(metrics) == [
        f"{prefix}completed_rebalances_total 0",
        f"{prefix}epoch 0",
        f"{prefix}rebalance_avg_time_ms NaN",
        f"{prefix}rebalance_max_time_ms NaN",
        f"{prefix}rebalancing 0",
        f"{prefix}time_since_last_rebalance_ms +Inf",
    ]


def test_a_member_has_the_names_and_values_of_kafka_connect(clock):
    metrics = Metrics()
    member = GroupMetrics(
        heartbeats=Timed(4, 20.0, 9.0),
        joins=Timed(2, 300.0, 200.0),
        syncs=Timed(2, 30.0, 20.0),
        rebalances=Timed(2, 400.0, 250.0),
        failed_rebalances=1,
        last_heartbeat_s=47.5,
        last_rebalance_s=20.0,
    )
    publish_member(metrics, lambda: IN, lambda: member, lambda: clock[0])

    prefix = "kafka_connect_coordinator_"
    assert shown(metrics) == [
        f"{prefix}assigned_connectors 1",
        f"{prefix}assigned_tasks 2",
        f"{prefix}failed_rebalance_total 1",
        f"{prefix}heartbeat_response_time_max 9",
        f"{prefix}heartbeat_total 4",
        f"{prefix}join_time_avg 150",
        f"{prefix}join_time_max 200",
        f"{prefix}join_total 2",
        f"{prefix}last_heartbeat_seconds_ago 2",
        f"{prefix}last_rebalance_seconds_ago 30",
        f"{prefix}rebalance_latency_avg 200",
        f"{prefix}rebalance_latency_max 250",
        f"{prefix}rebalance_latency_total 400",
        f"{prefix}rebalance_total 2",
        f"{prefix}sync_time_avg 15",
        f"{prefix}sync_time_max 20",
        f"{prefix}sync_total 2",
    ]


def test_what_a_member_has_never_done_has_no_average_and_no_time(clock):
    metrics = Metrics()
    publish_member(metrics, GroupPlace, GroupMetrics, lambda: clock[0])

    values = dict(line.split() for line in shown(metrics))
    assert values["kafka_connect_coordinator_join_time_avg"] == "NaN"
    assert values["kafka_connect_coordinator_last_heartbeat_seconds_ago"] == "-1"
