"""Validation names the rights that a user lacks on a table, and its GRANT makes the configuration valid."""

from __future__ import annotations

import re

import pytest
from tests.real.connectors.jdbc.writing import Database

from penstock.api import Connector
from penstock.connectors.jdbc import JdbcSink, JdbcSource

UPSERT = {"insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "id", "delete.enabled": "true"}


def faults(connector: Connector, settings: dict[str, str]) -> list[str]:
    return [text for value in connector.validate(settings).config_values for text in value.error_messages]


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Database:
    found = request.getfixturevalue(request.param)
    return Database.of_postgresql(found) if request.param == "postgresql" else Database.of_mariadb(found)


def test_the_grant_that_a_validation_names_is_enough(server: Database, name: str) -> None:
    user, is_postgresql = name.replace("t_", "u_"), server.kind == "postgresql"
    # In MariaDB a user without any right on a table does not see it.
    made = [f"CREATE USER {user} PASSWORD 'pw'"] if is_postgresql else [f"CREATE USER {user} IDENTIFIED BY 'pw'"]
    some = "GRANT USAGE ON SCHEMA public" if is_postgresql else f"GRANT REFERENCES ON {name}"
    server.run(f"CREATE TABLE {name} (id bigint PRIMARY KEY, name text)", *made, f"{some} TO {user}")
    url = {"connection.url": server.url, "connection.user": user, "connection.password": "pw"}
    source = {
        "name": "s",
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "table.include.list": name,
        "topic.prefix": "p-",
        **url,
    }
    sink = {"name": "k", "topics": f"other,{name}", **url, **UPSERT}

    for connector, settings, rights in (
        (JdbcSink(), sink, "SELECT, INSERT, UPDATE, DELETE"),
        (JdbcSource(), source, "SELECT"),
    ):
        (found,) = faults(connector, settings)
        assert re.fullmatch(
            rf"connection.user: the user {user}(@%)? has no right {rights} on the table .*{name}: .*", found
        )
        assert connector.obstacles(settings) == [found.removeprefix("connection.user: ")]
        grant = found.partition(": run ")[2]
        server.run(grant)
        assert faults(connector, settings) == []
        server.run(grant.replace("GRANT", "REVOKE").replace(" TO ", " FROM "))

    routed = {**sink, "transforms": "route"}
    assert faults(JdbcSink(), routed) == []  # A transform may change the topic,
    assert len(faults(JdbcSink(), {**routed, "table.name.format": name})) == 1  # but not the table.
    server.run(f"DROP TABLE {name}")
    assert faults(JdbcSink(), sink) == []  # Tables that are not there are another matter.


def test_a_schema_that_the_user_may_not_use_is_named(request: pytest.FixtureRequest, name: str) -> None:
    server, user = Database.of_postgresql(request.getfixturevalue("postgresql")), name.replace("t_", "u_")
    server.run(f"CREATE SCHEMA s{name}", f"CREATE TABLE s{name}.{name} (id int)", f"CREATE USER {user} PASSWORD 'pw'")
    settings = {"name": "k", "topics": "t", "table.name.format": f"s{name}.{name}", "connection.url": server.url}

    found = faults(JdbcSink(), {**settings, "connection.user": user, "connection.password": "pw"})

    assert found == [
        f"connection.user: the user {user} has no right USAGE on the schema s{name} of the table s{name}.{name}: "
        f"run GRANT USAGE ON SCHEMA s{name} TO {user}"
    ]
