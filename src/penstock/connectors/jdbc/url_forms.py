"""URLs of Oracle and SQL Server, brought into the form that URLs of other databases have; TLS in those of MySQL.

Main functions: `of_oracle`, `of_sql_server`, `tls_of_mysql`. Constants: `ORACLE`, `SQL_SERVER`, SQLAlchemy's names of
both. Pure; any thread.

Source: the documentation of Oracle Database, "JDBC Developer's Guide: Database URLs", that of Microsoft's JDBC driver,
    "Building the connection URL", and those of the drivers of MySQL and MariaDB for Java, "Security" and "TLS".
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

from penstock.errors import ConfigException

ORACLE: Final = "oracle"
SQL_SERVER: Final = "mssql"

_ORACLE_URL: Final = re.compile(
    r"(?:(?P<kind>\w+):)?(?:(?P<user>[^/@:]+)/(?P<password>[^@]*))?@(?://)?(?P<host>\[[^\]]*\]|[^:/?@(]+)"
    r"(?::(?P<port>\d+))?(?:(?P<mark>[:/])(?P<name>[^?]+))?(?:\?(?P<query>.*))?",
    re.DOTALL,
)
_SQL_SERVER_URL: Final = re.compile(
    r"//(?P<host>\[[^\]]*\]|[^:;/\\?@]+)(?::(?P<port>\d+))?(?:;(?P<properties>.*))?", re.DOTALL
)
#: An address in the form of SQLAlchemy that names a database.
_ORACLE_NAMED: Final = re.compile(r"//[^/]+/(?:[^?]+.*|\?(?:.*&)?service_name=.+)", re.DOTALL)
_PROPERTY: Final = re.compile(r"\s*([^=;]+?)\s*=\s*(?:\{((?:[^}]|\}\})*)\}|([^;]*))\s*(?:;|$)", re.DOTALL)
#: Other names of one property.
_SYNONYMS: Final = {"database": "databasename", "username": "user", "userid": "user", "server": "servername"}


def of_oracle(rest: str) -> str:
    """A URL of Oracle without its scheme, in the form of the other databases.

    Args:
        rest: ``thin:@HOST:PORT:SID``, ``thin:@//HOST:PORT/SERVICE``, either with ``USER/PASSWORD`` before the ``@``; a
            text in the form of the other databases stays as it is.

    Raises:
        ConfigException: The URL has another form, such as a connect descriptor or a name of ``tnsnames.ora``.

    >>> of_oracle("thin:@db:1521:XE"), of_oracle("thin:kay/secret@//db/shop")
    ('//db:1521/XE', '//db/?service_name=shop&user=kay&password=secret')
    """
    if _ORACLE_NAMED.fullmatch(rest):
        return rest
    found = _ORACLE_URL.fullmatch(rest)
    if found is None or not found["name"] or (found["kind"] or "thin") != "thin":
        raise ConfigException(
            "connection.url: write an address of Oracle as jdbc:oracle:thin:@//HOST:PORT/SERVICE or "
            "jdbc:oracle:thin:@HOST:PORT:SID; connect descriptors, names of tnsnames.ora and the driver oci are not "
            "supported"
        )
    port = f":{found['port']}" if found["port"] else ""
    is_sid = found["mark"] == ":"
    parameters = {} if is_sid else {"service_name": found["name"]}
    if found["user"]:
        parameters |= {"user": found["user"], "password": found["password"]}
    given = [one for one in (urlencode(parameters), found["query"]) if one]
    return f"//{found['host']}{port}/{found['name'] if is_sid else ''}{'?' if given else ''}{'&'.join(given)}"


def of_sql_server(rest: str) -> str:
    """A URL of SQL Server without its scheme, in the form of the other databases.

    Args:
        rest: ``//HOST:PORT;databaseName=NAME;encrypt=true``; a text in the form of the other databases stays as it is.

    Raises:
        ConfigException: The URL names an instance instead of a port, or no host.

    >>> of_sql_server("//db:1433;databaseName=shop;encrypt=false;user=kay")
    '//db:1433/shop?encrypt=false&user=kay'
    """
    found = _SQL_SERVER_URL.fullmatch(rest)
    if found is None:
        if "\\" in rest or ";" in rest or not rest.startswith("//"):
            raise ConfigException(
                "connection.url: write an address of SQL Server as jdbc:sqlserver://HOST:PORT;databaseName=NAME; an "
                "instance is named by its port"
            )
        return rest
    properties: dict[str, str] = {}
    for name, quoted, plain in _PROPERTY.findall(found["properties"] or ""):
        lower = name.lower()
        properties[_SYNONYMS.get(lower, lower)] = quoted.replace("}}", "}") or plain
    if "instancename" in properties or "servername" in properties:
        raise ConfigException(
            "connection.url: SQL Server is named by host and port: jdbc:sqlserver://HOST:PORT;databaseName=NAME"
        )
    database = properties.pop("databasename", "")
    port = f":{found['port']}" if found["port"] else ""
    return f"//{found['host']}{port}/{database}{'?' if properties else ''}{urlencode(properties)}"


#: The parameters of Java's drivers for TLS to MySQL and MariaDB.
TLS_OF_MYSQL: Final = (
    *("useSSL", "useSsl", "requireSSL", "sslMode"),
    *("verifyServerCertificate", "trustServerCertificate", "disableSslHostnameVerification"),
)
#: Values of ``sslMode``: whether certificates, and whether names are checked; None: TLS only if the server wants it.
_TLS_MODES: Final[Mapping[str, tuple[bool, bool] | None]] = {
    **dict.fromkeys(("disable", "disabled", "preferred"), None),
    **dict.fromkeys(("required", "trust"), (False, False)),
    "verify_ca": (True, False),
    **dict.fromkeys(("verify_identity", "verify_full"), (True, True)),
}


def tls_of_mysql(query: Mapping[str, str], is_mariadb: bool) -> dict[str, str]:
    """The options of the client for the parameters for TLS of Java's drivers.

    ``useSSL=true`` requires TLS. MariaDB's driver then checks certificate and name, unless ``trustServerCertificate``
    is true; MySQL's checks the certificate if ``verifyServerCertificate`` is. Both check them where there is an
    ``ssl_ca``; without one, the system says which authorities it trusts. Without TLS in the URL the client uses it if
    the server has it, and checks nothing.

    Args:
        query: The parameters of the URL.
        is_mariadb: True if it is an address of MariaDB.

    Raises:
        ConfigException: ``sslMode`` has another value.

    >>> tls_of_mysql({"useSSL": "true"}, False), tls_of_mysql({"useSSL": "false"}, False)
    ({'ssl_check_hostname': 'true'}, {})
    >>> tls_of_mysql({"sslMode": "VERIFY_CA", "ssl_ca": "ca.pem"}, False)
    {'ssl_check_hostname': 'false'}
    """
    is_true = {name for name in TLS_OF_MYSQL if query.get(name, "").lower() in ("true", "1")}
    if mode := query.get("sslMode", ""):
        found = mode.lower().replace("-", "_")
        if found not in _TLS_MODES:
            raise ConfigException(f"connection.url: sslMode={mode} is none of {', '.join(_TLS_MODES)}")
        checks = _TLS_MODES[found]
    elif not is_true & {"useSSL", "useSsl", "requireSSL"}:
        return {}
    elif is_mariadb:
        checks = ("trustServerCertificate" not in is_true, "disableSslHostnameVerification" not in is_true)
    else:
        checks = ("verifyServerCertificate" in is_true, "ssl_ca" in query)
    if checks is None:
        return {}
    certificate, name = checks
    if not certificate:
        # Without an authority there is nothing to compare a name with.
        return {"ssl_check_hostname": "true"}
    paths, options = ssl.get_default_verify_paths(), {"ssl_check_hostname": str(name).lower()}
    if "ssl_ca" not in query:
        options |= {"ssl_ca": paths.cafile} if paths.cafile else {"ssl_capath": paths.capath or paths.openssl_capath}
    return options
