"""Settings of the connection, which source and sink share. Main type: `ConnectionConfig`. Values; any thread.

Source: the settings of io.confluent.connect.jdbc.JdbcSourceConnector and JdbcSinkConnector.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from penstock.config import (
    AbstractConfig,
    CaseInsensitiveValidString,
    Importance,
    LambdaValidator,
    Password,
    Range,
    ValidList,
    setting,
)
from penstock.connectors.jdbc.addresses import URL_CONFIG, DatabaseAddress, missing_libraries, parse_address
from penstock.connectors.setting_values import TIME_ZONE
from penstock.errors import ConfigException

#: Tables that a validation looks at: it has to answer in time.
MOST_CHECKED: Final = 20


def _check_url(name: str, value: object) -> None:
    if isinstance(value, str):
        missing = missing_libraries(parse_address(value).dialect)
        if missing:
            raise ConfigException(f"{name}: {missing}")


#: The dialects of the Java connectors, by their names without ``DatabaseDialect``; None: any database.
_DIALECTS: Final[Mapping[str, tuple[str, ...] | None]] = {
    "": None,
    "generic": None,
    "postgresql": ("postgresql",),
    "mysql": ("mysql", "mariadb"),
    "sqlite": ("sqlite",),
    "oracle": ("oracle",),
    "sqlserver": ("mssql",),
}


def any_case(kind: type[Enum]) -> CaseInsensitiveValidString:
    """The values of an Enum in any letter case, as the Java connectors take them."""
    return CaseInsensitiveValidString(*(member.value for member in kind))


class ConnectionConfig(AbstractConfig):
    """The settings of the connection."""

    connection_url: str = setting(
        URL_CONFIG,
        validator=LambdaValidator(_check_url, "the address of a database"),
        importance=Importance.HIGH,
        doc="The address of the database: jdbc:postgresql://HOST:PORT/DATABASE, jdbc:mysql://.., jdbc:mariadb://.., "
        "jdbc:sqlite:PATH, jdbc:duckdb:PATH, jdbc:oracle:thin:@//HOST:PORT/SERVICE or "
        "jdbc:sqlserver://HOST:PORT;databaseName=NAME, with or without jdbc:.",
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
        validator=TIME_ZONE,
        doc="The time zone of timestamps that have none.",
    )
    table_types: tuple[str, ...] = setting(
        default=("TABLE",),
        validator=ValidList.of("TABLE", "VIEW", "PARTITIONED TABLE"),
        importance=Importance.LOW,
        doc="The kinds of tables to look for: TABLE, VIEW, or both.",
    )
    dialect_name: str = setting(
        default="",
        importance=Importance.LOW,
        doc="The Java connector's name of the database, such as PostgreSqlDatabaseDialect. connection.url says which "
        "database it is; another name is refused.",
    )
    quote_sql_identifiers: str = setting(
        default="always",
        validator=CaseInsensitiveValidString("always", "never"),
        importance=Importance.LOW,
        doc="always: names of tables and columns are taken as they are. never: as the database takes names without "
        "quotes, in lower case on PostgreSQL.",
    )

    def faults(self, properties: Mapping[str, object]) -> list[tuple[str, str]]:
        """See ``AbstractConfig``."""
        there = self.address().dialect.name
        name = self.dialect_name.lower().removesuffix("databasedialect")
        if name not in _DIALECTS:
            return [("dialect.name", f"{self.dialect_name} is not there: connection.url says which database it is")]
        meant = _DIALECTS[name]
        if meant is not None and there not in meant:
            return [("dialect.name", f"is {self.dialect_name}, and connection.url is an address of {there}")]
        return []

    def name_of(self, name: str) -> str:
        """The name that the database takes this one for; see ``quote.sql.identifiers``."""
        folds = self.quote_sql_identifiers.lower() == "never" and self.address().dialect.name == "postgresql"
        return name.lower() if folds else name

    def address(self) -> DatabaseAddress:
        """The address with its login."""
        password = self.connection_password.value if self.connection_password else None
        return parse_address(self.connection_url, self.connection_user, password)
