"""The first load of a table through a real distributed worker that delivers exactly once and is killed meanwhile."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from testkit.doubles.exactly_once import visible
from testkit.processes.worker_group import WorkerGroup

from penstock.broker import EmbeddedBroker
from penstock.broker.postgresql import PostgreSql

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]

ROWS = 24_000


def test_a_killed_snapshot_goes_on_where_it_was_and_each_row_is_seen_once(
    broker: EmbeddedBroker, postgresql: PostgreSql, tmp_path: Path
) -> None:
    name = f"visits_{uuid.uuid4().hex[:8]}"
    postgresql.execute(
        f"CREATE TABLE {name} (id bigserial PRIMARY KEY, page text);"
        f"INSERT INTO {name} (page) SELECT 'page ' || n FROM generate_series(1, {ROWS}) n; ANALYZE {name}"
    )
    config = {
        "connector.class": "JdbcSource",
        "tasks.max": "2",
        "connection.url": postgresql.jdbc_url,
        "table.include.list": name,
        "mode": "incrementing",
        "snapshot.chunk.size": "3000",
        "snapshot.max.threads": "1",
        "batch.max.rows": "500",
        "poll.interval.ms": "200",
        "topic.prefix": "t-",
        "exactly.once.support": "required",
        "transaction.boundary": "connector",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    with WorkerGroup(tmp_path, broker.bootstrap_servers, {"exactly.once.source.support": "enabled"}, size=1) as group:
        worker = group.workers[0]

        def offsets() -> list[dict[str, Any]]:
            status, body = worker.ask("GET", f"/connectors/{name}/offsets")
            return body["offsets"] if status == 200 and isinstance(body, dict) else []

        def of_ranges() -> list[dict[str, Any]]:
            return [one["offset"] for one in offsets() if "range" in one["partition"]]

        def progress() -> list[Any]:
            status, body = worker.ask("GET", f"/connectors/{name}/explain")
            assert status == 200, body
            assert isinstance(body, dict)
            return [task["progress"] for task in body["tasks"] if "progress" in task]

        group.create(name, config)
        group.wait(lambda: any(one["rows"] > 0 for one in of_ranges()), "ranges are read", 120)
        group.wait(progress, "tasks say how far they are")
        worker.kill()
        postgresql.execute(f"INSERT INTO {name} (page) SELECT 'late' FROM generate_series(1, 100)")
        group.start()
        group.wait(lambda: len(offsets()) == 1, "the snapshot has ended", 150)
        group.wait(lambda: offsets()[0]["offset"] == {"incrementing": ROWS + 100}, "late rows follow")
        # Its offsets can be changed as always, those of a range too.
        group.bring_to(name, "stop")
        group.wait_states(name, "STOPPED")
        partition = {"protocol": "1", "table": f"public.{name}", "snapshot": "plan"}
        answer = worker.ask(
            "PATCH", f"/connectors/{name}/offsets", {"offsets": [{"partition": partition, "offset": {"rows": 1}}]}
        )
        assert answer[0] == 400, answer
        assert "Remove it (null) to have the table cut anew" in str(answer[1])
        seen = Counter(json.loads(value)["id"] for value in visible(broker.bootstrap_servers, f"t-{name}"))
        assert set(seen) == set(range(1, ROWS + 101))
        assert set(seen.values()) == {1}
        group.delete(name)
