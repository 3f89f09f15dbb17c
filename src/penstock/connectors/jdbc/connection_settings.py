"""Settings of the connection, which source and sink share. Main type: `ConnectionConfig`. Values; any thread.

Source: the settings of io.confluent.connect.jdbc.JdbcSourceConnector and JdbcSinkConnector.
"""

from __future__ import annotations

from zoneinfo import ZoneInfo

from penstock.config import AbstractConfig, Importance, LambdaValidator, Password, Range, ValidList, setting
from penstock.connectors.jdbc.addresses import URL_CONFIG, Address, missing_libraries, parse_address
from penstock.errors import ConfigException


def _check_url(name: str, value: object) -> None:
    if isinstance(value, str):
        missing = missing_libraries(parse_address(value).dialect)
        if missing:
            raise ConfigException(f"{name}: {missing}")


def _check_zone(name: str, value: object) -> None:
    try:
        ZoneInfo(str(value))
    except (KeyError, ValueError, OSError) as error:
        raise ConfigException(
            name, value, "is no time zone that this system knows; write a name such as UTC or Europe/Berlin"
        ) from error


class ConnectionConfig(AbstractConfig):
    """The settings of the connection."""

    connection_url: str = setting(
        URL_CONFIG,
        validator=LambdaValidator(_check_url, "the address of a database"),
        importance=Importance.HIGH,
        doc="The address of the database: jdbc:postgresql://HOST:PORT/DATABASE, jdbc:mysql://.., jdbc:mariadb://.., "
        "jdbc:sqlite:PATH or jdbc:duckdb:PATH, with or without jdbc:.",
    )
    connection_user: str | None = setting(
        default=None, importance=Importance.HIGH, doc="Who logs in; wins over a user in the address."
    )
    connection_password: Password | None = setting(
        default=None, importance=Importance.HIGH, doc="The password; wins over one in the address."
    )
    connection_attempts: int = setting(
        default=3,
        validator=Range.at_least(1),
        importance=Importance.LOW,
        doc="How often connecting is tried before the task reports that the database cannot be reached.",
    )
    connection_backoff_ms: int = setting(
        default=10_000,
        validator=Range.at_least(0),
        importance=Importance.LOW,
        doc="How long to wait between two of these attempts.",
    )
    db_timezone: str = setting(
        default="UTC",
        validator=LambdaValidator(_check_zone, "the name of a time zone"),
        doc="The time zone of timestamps that have none.",
    )
    table_types: tuple[str, ...] = setting(
        default=("TABLE",),
        validator=ValidList.of("TABLE", "VIEW", "PARTITIONED TABLE"),
        importance=Importance.LOW,
        doc="The kinds of tables to look for: TABLE, VIEW, or both.",
    )

    def address(self) -> Address:
        """The address with its login."""
        password = self.connection_password.value if self.connection_password else None
        return parse_address(self.connection_url, self.connection_user, password)
