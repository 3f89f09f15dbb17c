"""Addresses of databases: ``jdbc:`` URLs and SQLAlchemy URLs, and the drivers that they need.

Main types: `DatabaseAddress`, made by `parse_address`. Pure; any thread. Nothing here connects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, urlencode

from penstock.connectors.jdbc.url_forms import ORACLE, SQL_SERVER, TLS_OF_MYSQL, of_oracle, of_sql_server, tls_of_mysql
from penstock.errors import ConfigException

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

#: The setting that holds the address.
URL_CONFIG: Final = "connection.url"


@dataclass(frozen=True, slots=True)
class DatabaseDialect:
    """A kind of database.

    Attributes:
        name: Its name in SQLAlchemy, and the value of ``dialect.name``.
        driver: The SQLAlchemy driver.
        extra: The extra of Penstock that brings its libraries.
        modules: What has to be installed.
        options: The parameters of a URL that are taken, each with the name that the driver has for it. A parameter can
            make a driver read files or run code, so one that is not listed is refused.
        port: The default port, None for files.
        plain: From the text after the scheme of a ``jdbc:`` URL to ``//host:port/database?parameter=value``.
    """

    name: str
    driver: str
    extra: str
    modules: tuple[str, ...]
    options: Mapping[str, str]
    port: int | None = None
    plain: Callable[[str], str] = str


_POSTGRESQL: Final = DatabaseDialect(
    "postgresql",
    "psycopg",
    "postgresql",
    ("sqlalchemy", "psycopg", "adbc_driver_postgresql"),
    {
        "sslmode": "sslmode",
        "sslrootcert": "sslrootcert",
        "sslcert": "sslcert",
        "sslkey": "sslkey",
        "connect_timeout": "connect_timeout",
        "connectTimeout": "connect_timeout",
        "application_name": "application_name",
        "ApplicationName": "application_name",
        "target_session_attrs": "target_session_attrs",
        "currentSchema": "currentSchema",
        "ssl": "ssl",
        "tcpKeepAlive": "keepalives",
    },
    5432,
)
_MYSQL_OPTIONS: Final = {
    "charset": "charset",
    "connect_timeout": "connect_timeout",
    "connectTimeout": "connectTimeout",
    "ssl_ca": "ssl_ca",
    "ssl_cert": "ssl_cert",
    "ssl_key": "ssl_key",
    "characterEncoding": "characterEncoding",
    "zeroDateTimeBehavior": "zeroDateTimeBehavior",
    **dict.fromkeys(TLS_OF_MYSQL, "nothing"),
    # Of the drivers of Java, and without a meaning here.
    **dict.fromkeys(
        ("useUnicode", "allowPublicKeyRetrieval", "autoReconnect", "rewriteBatchedStatements", "useServerPrepStmts"),
        "nothing",
    ),
    **dict.fromkeys(("cachePrepStmts", "useBulkStmts", "useLegacyDatetimeCode"), "nothing"),
}
_SQL_SERVER_OPTIONS: Final = {
    "encrypt": "yesOrNo:Encrypt",
    "trustservercertificate": "yesOrNo:TrustServerCertificate",
    "multisubnetfailover": "yesOrNo:MultiSubnetFailover",
    "integratedsecurity": "yesOrNo:Trusted_Connection",
    "applicationintent": "ApplicationIntent",
    "hostnameincertificate": "HostnameInCertificate",
    "authentication": "Authentication",
    # Of Java's driver, and without a meaning here.
    **dict.fromkeys(("applicationname", "logintimeout", "sendstringparametersasunicode"), "nothing"),
    **dict.fromkeys(("selectmethod", "responsebuffering", "usebulkcopyforbatchinsert"), "nothing"),
}

#: The supported databases, by SQLAlchemy's names.
DIALECTS: Final[Mapping[str, DatabaseDialect]] = {
    one.name: one
    for one in (
        _POSTGRESQL,
        DatabaseDialect("sqlite", "pysqlite", "sqlite", ("sqlalchemy",), {}),
        DatabaseDialect("duckdb", "", "duckdb", ("sqlalchemy", "duckdb"), {}),
        DatabaseDialect("mysql", "pymysql", "mysql", ("sqlalchemy", "pymysql"), _MYSQL_OPTIONS, 3306),
        DatabaseDialect("mariadb", "pymysql", "mysql", ("sqlalchemy", "pymysql"), _MYSQL_OPTIONS, 3306),
        DatabaseDialect(
            ORACLE,
            "oracledb",
            "oracle",
            ("sqlalchemy", "oracledb"),
            {"service_name": "service_name"},
            1521,
            of_oracle,
        ),
        DatabaseDialect(
            SQL_SERVER,
            "mssqlpython",
            "mssql",
            ("sqlalchemy", "mssql_python"),
            _SQL_SERVER_OPTIONS,
            1433,
            of_sql_server,
        ),
    )
}
#: Other names of them in URLs.
_SYNONYMS: Final[Mapping[str, str]] = {"postgres": "postgresql", "sqlserver": SQL_SERVER}

_SCHEME = re.compile(r"(?:jdbc:)?([A-Za-z][A-Za-z0-9]*)(?:\+[A-Za-z0-9_]+)?:(.*)", re.DOTALL)
_AUTHORITY = re.compile(
    r"(?:(?P<user>[^:@/]*)(?::(?P<password>[^@/]*))?@)?"
    r"(?P<host>\[[^\]]*\]|[^:/?@]*)(?::(?P<port>\d*))?(?:/(?P<database>[^?]*))?(?:\?(?P<query>.*))?",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, repr=False)
class DatabaseAddress:
    """The address of a database, with its login.

    Attributes:
        dialect: Its kind.
        host: Empty for a file.
        port: None for a file.
        database: Its name, or the path of a file.
        user: None: the driver's own default.
        password: Likewise.
        options: The parameters of the URL, by the driver's names.
    """

    dialect: DatabaseDialect
    host: str
    port: int | None
    database: str
    user: str | None
    password: str | None
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Address({self.label})"

    @property
    def label(self) -> str:
        """The address in messages, without password: ``postgresql://db:5432/shop``."""
        if self.port is None:
            return f"{self.dialect.name}:{self.database}"
        name = self.database or self.options.get("service_name", "")
        return f"{self.dialect.name}://{self.host}:{self.port}/{name}"

    def sqlalchemy_url(self) -> URL:
        """The address for SQLAlchemy. Needs SQLAlchemy."""
        from sqlalchemy.engine import URL

        return URL.create(
            # SQLAlchemy's dialect mysql knows both servers; that of MariaDB refuses MySQL.
            f"{self.dialect.name.replace('mariadb', 'mysql')}+{self.dialect.driver}",
            username=self.user,
            password=self.password,
            host=self.host or None,
            port=self.port,
            database=self.database or None,
            query=dict(self.options),
        )

    def libpq_uri(self) -> str:
        """The address for libpq, PostgreSQL's own client library."""
        login = "" if self.user is None else quote(self.user, safe="")
        if self.password is not None:
            login += f":{quote(self.password, safe='')}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        options = f"?{urlencode(self.options, quote_via=quote)}" if self.options else ""
        return f"postgresql://{login}{'@' if login else ''}{host}:{self.port}/{quote(self.database)}{options}"


def parse_address(url: str, user: str | None = None, password: str | None = None) -> DatabaseAddress:
    """The address that a URL names.

    Args:
        url: ``jdbc:postgresql://host:port/database?parameter=value``, or the same without ``jdbc:``;
            ``jdbc:sqlite:PATH`` for a file.
        user: ``connection.user``; wins over the URL's.
        password: ``connection.password``; wins over the URL's.

    Raises:
        ConfigException: The URL has another form, or a kind of database or a parameter that is not supported.

    >>> parse_address("jdbc:postgresql://db/shop?user=kay").label
    'postgresql://db:5432/shop'
    >>> parse_address("jdbc:sqlite:/tmp/shop.db").label
    'sqlite:/tmp/shop.db'
    """
    found = _SCHEME.fullmatch(url.strip())
    scheme = found.group(1).lower() if found else ""
    name = _SYNONYMS.get(scheme, scheme)
    if found is None or name not in DIALECTS:
        raise ConfigException(
            f"{URL_CONFIG} is no address of a database that is supported: {_without_password(url)!r}. Write it as "
            "jdbc:postgresql://HOST:PORT/DATABASE, jdbc:mysql://.., jdbc:mariadb://.., jdbc:sqlite:PATH, "
            "jdbc:duckdb:PATH, jdbc:oracle:thin:@//HOST:PORT/SERVICE or jdbc:sqlserver://HOST:PORT;databaseName=NAME"
        )
    dialect, rest = DIALECTS[name], found.group(2)
    if dialect.port is None:
        return _file_address(dialect, rest)
    rest = dialect.plain(rest)
    parts = _AUTHORITY.fullmatch(rest.removeprefix("//")) if rest.startswith("//") else None
    if parts is None or not parts["host"]:
        raise ConfigException(
            f"{URL_CONFIG} has no host: {_without_password(url)!r}. Write it as "
            f"jdbc:{name}://HOST:PORT/DATABASE; several hosts in one URL are not supported"
        )
    query = dict(parse_qsl(parts["query"] or "", keep_blank_values=True))
    in_url = query.pop("user", None) or parts["user"], query.pop("password", None) or parts["password"]
    return DatabaseAddress(
        dialect,
        parts["host"].strip("[]"),
        int(parts["port"] or dialect.port),
        parts["database"] or "",
        user or in_url[0] or None,
        password or in_url[1] or None,
        _options(dialect, query),
    )


def _file_address(dialect: DatabaseDialect, rest: str) -> DatabaseAddress:
    """A file is named as in JDBC (``sqlite:/a/b``) or as in SQLAlchemy (``sqlite:////a/b``, ``sqlite:///b``)."""
    path = rest.removeprefix("///") if rest.startswith("//") else rest
    if "?" in path or path.startswith("file:"):
        raise ConfigException(f"{URL_CONFIG}: a path of {dialect.name} takes no parameters, got {rest!r}")
    if path in ("", ":memory:"):
        raise ConfigException(
            f"{URL_CONFIG} names no file: a database in memory ends with the connection. Write it as "
            f"jdbc:{dialect.name}:PATH"
        )
    return DatabaseAddress(dialect, "", None, path, None, None, {})


def _options(dialect: DatabaseDialect, query: Mapping[str, str]) -> dict[str, str]:
    if dialect.name == SQL_SERVER:
        query = {key.lower(): value for key, value in query.items()}
    tls = tls_of_mysql(query, is_mariadb=dialect.name == "mariadb") if "useSSL" in dialect.options else {}
    unknown = sorted(set(query) - set(dialect.options))
    if unknown:
        raise ConfigException(
            f"{URL_CONFIG}: the parameter {', '.join(unknown)} of the URL is not supported. {dialect.name} takes "
            f"{', '.join(sorted(set(dialect.options)))}"
        )
    options: dict[str, str] = dict(tls)
    for key, value in query.items():
        kind, _, name = dialect.options[key].rpartition(":")
        adapted = _yes_or_no(name) if kind else _ADAPTED.get(name)
        options.update(adapted(value) if adapted else {name: value})
    return options


def _search_path(schema: str) -> dict[str, str]:
    names = [one.strip() for one in schema.split(",")]
    if not all(re.fullmatch(r"\w+", name) for name in names):
        raise ConfigException(f"{URL_CONFIG}: currentSchema takes names of schemas, got {schema!r}")
    return {"options": f"-csearch_path={','.join(names)}"}


def _key_file(path: str) -> dict[str, str]:
    """PostgreSQL's client takes text with a colon for an engine of OpenSSL, and loads the library of that name."""
    if ":" in path:
        raise ConfigException(f"{URL_CONFIG}: sslkey takes the path of a file, without a colon, got {path!r}")
    return {"sslkey": path}


def _yes_or_no(name: str) -> Callable[[str], dict[str, str]]:
    """A parameter that is ``true`` or ``false`` in JDBC, and ``yes`` or ``no`` for ODBC; other values stay."""
    return lambda value: {name: {"true": "yes", "false": "no"}.get(value.lower(), value)}


def _only(name: str, *values: str) -> Callable[[str], dict[str, str]]:
    """Takes a parameter where its value says what is done anyway."""

    def adapted(value: str) -> dict[str, str]:
        if value.lower() not in values:
            raise ConfigException(f"{URL_CONFIG}: {name}={value} is not supported, only {' and '.join(values)}")
        return {}

    return adapted


#: JDBC's parameters that the drivers here have another form of, and those of which not every value is taken.
_ADAPTED: Final[Mapping[str, Callable[[str], dict[str, str]]]] = {
    "currentSchema": _search_path,
    "sslkey": _key_file,
    "ssl": lambda value: {"sslmode": "verify-full"} if value.lower() in ("", "true") else {},
    "keepalives": lambda value: {"keepalives": "1" if value.lower() == "true" else "0"},
    "characterEncoding": _only("characterEncoding", "utf8", "utf-8", "utf8mb4"),
    "zeroDateTimeBehavior": _only("zeroDateTimeBehavior", "converttonull", "convert_to_null"),
    "nothing": lambda _: {},
    "connectTimeout": lambda value: {"connect_timeout": str(max(1, int(value) // 1000)) if value.isdigit() else value},
}


def missing_libraries(dialect: DatabaseDialect) -> str | None:
    """A message if a library of this kind of database is not installed, else None."""
    missing = [name for name in dialect.modules if find_spec(name) is None]
    if not missing:
        return None
    return (
        f"{dialect.name} needs the Python {'library' if len(missing) == 1 else 'libraries'} {', '.join(missing)}, "
        f"which this worker does not have: run `pip install 'penstock[{dialect.extra}]'` in its environment and "
        "restart it"
    )


def _without_password(url: str) -> str:
    """The URL for a message: neither ``user:password@`` nor ``password=`` shows."""
    hidden = re.sub(r"(thin:)[^@]*@", r"\1[hidden]@", re.sub(r"//[^/@]*@", "//[hidden]@", url))
    return re.sub(r"(?i)((?:password|pwd)=)[^&;]*", r"\1[hidden]", hidden)
