"""Which settings of a producer the columns' own one takes."""

from __future__ import annotations

import pytest

from penstock.kafka.client_settings import producer_settings
from penstock.kafka.column_settings import ColumnSettings
from penstock.kafka.wire import Address

WORKER = {"bootstrap.servers": "one:9092, [::1]:9093"}


def taken(**own: str) -> ColumnSettings | None:
    worker = WORKER | {f"producer.{name.replace('_', '.')}": value for name, value in own.items()}
    return ColumnSettings.of(producer_settings(worker, {}, client_id="c").checked().librdkafka)


def test_the_workers_own_settings_are_taken() -> None:
    found = taken()
    assert found is not None
    assert found.bootstrap == (Address("one", 9092), Address("::1", 9093))
    assert found.client_id == "c"
    assert found.buffer == 32 << 20
    assert found.request_size == 1 << 20
    assert found.delivery_timeout == (2**31 - 1) / 1000
    assert found.compression.code == 0
    assert (found.batch_size, found.stick) == (1_000_000, 16_384)


def test_what_users_often_set_is_taken() -> None:
    found = taken(batch_size="262144", linger_ms="5", buffer_memory="1048576", compression_type="lz4", acks="all")
    assert found is not None
    assert (found.batch_size, found.stick, found.buffer, found.compression.code) == (262144, 262144, 1 << 20, 3)
    keyless = taken(partitioner_ignore_keys="true")
    assert keyless is not None
    assert keyless.ignore_keys


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("security_protocol", "SSL"),
        ("acks", "1"),
        ("enable_idempotence", "false"),
        ("debug", "broker"),
        ("bootstrap_servers", "PLAINTEXT://one:9092"),
        ("bootstrap_servers", "one"),
    ],
)
def test_what_asks_for_the_client_library_is_left_to_it(name: str, value: str) -> None:
    assert taken(**{name: value}) is None
