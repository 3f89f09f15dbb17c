"""Addresses of databases."""

from __future__ import annotations

import ssl
from typing import Any

import pymysql
import pytest

from penstock.connectors.jdbc.addresses import parse_address
from penstock.errors import ConfigException


@pytest.mark.parametrize(
    ("url", "label", "uri"),
    [
        ("jdbc:postgresql://db:5433/shop", "postgresql://db:5433/shop", "postgresql://db:5433/shop"),
        ("jdbc:postgresql://db/shop", "postgresql://db:5432/shop", "postgresql://db:5432/shop"),
        (
            "postgresql+psycopg://kay:p%40s@db/shop",
            "postgresql://db:5432/shop",
            "postgresql://kay:p%2540s@db:5432/shop",
        ),
        ("postgres://kay@db/shop", "postgresql://db:5432/shop", "postgresql://kay@db:5432/shop"),
        (
            "jdbc:postgresql://db/shop?user=kay&password=a%26b&sslmode=require",
            "postgresql://db:5432/shop",
            "postgresql://kay:a%26b@db:5432/shop?sslmode=require",
        ),
        (
            "jdbc:postgresql://[::1]:5432/shop?ssl=true&currentSchema=a,b",
            "postgresql://::1:5432/shop",
            "postgresql://[::1]:5432/shop?sslmode=verify-full&options=-csearch_path%3Da%2Cb",
        ),
    ],
)
def test_addresses_of_postgresql(url: str, label: str, uri: str) -> None:
    address = parse_address(url)
    assert address.label == label
    assert address.libpq_uri() == uri


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("jdbc:sqlite:/a/b.db", "/a/b.db"),
        ("sqlite:////a/b.db", "/a/b.db"),
        ("sqlite:///b.db", "b.db"),
        ("jdbc:sqlite:b.db", "b.db"),
    ],
)
def test_addresses_of_files(url: str, path: str) -> None:
    assert parse_address(url).database == path


def test_settings_win_over_the_login_in_the_address() -> None:
    address = parse_address("jdbc:mysql://db/shop?user=a&password=b", "kay", "secret")
    assert (address.user, address.password) == ("kay", "secret")
    assert "secret" not in repr(address)
    assert str(address.sqlalchemy_url()) == "mysql+pymysql://kay:***@db:3306/shop"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "no address"),
        ("jdbc:db2://db:50000/x", "no address of a database that is supported"),
        ("jdbc:oracle:thin:@(DESCRIPTION=(ADDRESS=(HOST=db)))", "connect descriptors"),
        ("jdbc:oracle:oci:@//db/shop", "the driver oci"),
        ("jdbc:oracle:thin:@shop", "names of tnsnames.ora"),
        ("oracle://db", "write an address of Oracle as"),
        ("jdbc:sqlserver://db\\\\SQLEXPRESS;databaseName=x", "an instance is named by its port"),
        ("jdbc:sqlserver://;serverName=db", "write an address of SQL Server as"),
        ("jdbc:sqlserver://db;trustStore=/etc/x", "the parameter truststore of the URL is not supported"),
        ("jdbc:postgresql:shop", "has no host"),
        ("jdbc:postgresql:///shop", "has no host"),
        ("jdbc:postgresql://a:1,b:2/shop", "several hosts"),
        ("jdbc:postgresql://db/shop?service=x", "the parameter service of the URL is not supported"),
        ("jdbc:postgresql://db/shop?passfile=/etc/x&options=-c", "the parameter options, passfile"),
        ("jdbc:mysql://db/shop?local_infile=1", "the parameter local_infile"),
        ("jdbc:mysql://db/shop?read_default_file=/etc/x", "the parameter read_default_file"),
        ("jdbc:postgresql://db/shop?currentSchema=a%20-c%20x", "currentSchema takes names"),
        ("jdbc:sqlite:file:/a?mode=ro", "takes no parameters"),
        ("jdbc:sqlite:", "names no file: .*jdbc:sqlite:PATH"),
        ("jdbc:sqlite::memory:", "a database in memory ends with the connection"),
        ("sqlite:///", "names no file"),
        ("jdbc:duckdb:", "names no file: .*jdbc:duckdb:PATH"),
    ],
)
def test_other_addresses_are_refused(url: str, said: str) -> None:
    with pytest.raises(ConfigException, match=said):
        parse_address(url)


def test_a_password_shows_in_no_message() -> None:
    for url in ("oracle://kay:s3cret@db", "jdbc:oracle:thin:kay/s3cret@db", "jdbc:nosuch://db?password=s3cret&x=1"):
        with pytest.raises(ConfigException) as caught:
            parse_address(url)
        assert "s3cret" not in str(caught.value)


def test_parameters_of_javas_drivers_for_mysql_are_taken_where_they_say_what_is_done_anyway() -> None:
    url = "jdbc:mysql://db/shop?user=kay&useSSL=false&characterEncoding=UTF-8&zeroDateTimeBehavior=convertToNull"
    assert parse_address(f"{url}&rewriteBatchedStatements=true&connectTimeout=5000").options == {"connect_timeout": "5"}
    for more in ("sslMode=some", "characterEncoding=latin1", "zeroDateTimeBehavior=ROUND", "serverTimezone=UTC"):
        with pytest.raises(ConfigException, match=more.partition("=")[0]):
            parse_address(f"jdbc:mysql://db/shop?{more}")


def test_mariadb_and_mysql_have_the_dialect_that_takes_both_servers() -> None:
    assert str(parse_address("jdbc:mariadb://db/shop").sqlalchemy_url()) == "mysql+pymysql://db:3306/shop"
    assert parse_address("jdbc:mariadb://db/shop").label == "mariadb://db:3306/shop"
    assert parse_address("jdbc:duckdb:/tmp/shop.duckdb").label == "duckdb:/tmp/shop.duckdb"


@pytest.mark.parametrize(
    ("url", "label", "login", "for_sqlalchemy"),
    [
        (
            "jdbc:oracle:thin:@//db:1522/shop",
            "oracle://db:1522/shop",
            (None, None),
            "oracle+oracledb://db:1522?service_name=shop",
        ),
        (
            "jdbc:oracle:thin:kay/a/b@db:1521:XE",
            "oracle://db:1521/XE",
            ("kay", "a/b"),
            "oracle+oracledb://kay:***@db:1521/XE",
        ),
        (
            "oracle+oracledb://kay:a@db/?service_name=s",
            "oracle://db:1521/s",
            ("kay", "a"),
            "oracle+oracledb://kay:***@db:1521?service_name=s",
        ),
        (
            "jdbc:sqlserver://db;databaseName=shop;user=kay;password={a;b}}c};encrypt=true;loginTimeout=5",
            "mssql://db:1433/shop",
            ("kay", "a;b}c"),
            "mssql+mssqlpython://kay:***@db:1433/shop?Encrypt=yes",
        ),
        (
            "mssql+mssqlpython://kay:a@db:1/shop?Encrypt=strict",
            "mssql://db:1/shop",
            ("kay", "a"),
            "mssql+mssqlpython://kay:***@db:1/shop?Encrypt=strict",
        ),
    ],
)
def test_addresses_of_oracle_and_sql_server(
    url: str, label: str, login: tuple[str | None, str | None], for_sqlalchemy: str
) -> None:
    address = parse_address(url)
    assert (address.label, (address.user, address.password)) == (label, login)
    assert str(address.sqlalchemy_url()) == for_sqlalchemy


@pytest.mark.parametrize(
    ("given", "checks_certificate", "checks_name"),
    [
        ("mysql://db/shop?useSSL=true", False, False),
        ("mysql://db/shop?useSSL=true&requireSSL=true", False, False),
        ("mysql://db/shop?useSSL=true&verifyServerCertificate=true", True, False),
        ("mysql://db/shop?useSSL=true&ssl_ca=ca.pem", True, True),
        ("mysql://db/shop?sslMode=REQUIRED", False, False),
        ("mysql://db/shop?sslMode=VERIFY_IDENTITY", True, True),
        ("mariadb://db/shop?useSsl=true", True, True),
        ("mariadb://db/shop?useSsl=true&trustServerCertificate=true", False, False),
        ("mariadb://db/shop?sslMode=verify-ca", True, False),
        ("mariadb://db/shop?sslMode=trust", False, False),
    ],
)
def test_tls_to_mysql_is_required_and_checked_as_java_s_drivers_do(
    given: str, checks_certificate: bool, checks_name: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    def context(**files: str | None) -> ssl.SSLContext:
        made.append(files)
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    monkeypatch.setattr(ssl, "create_default_context", context)
    url = parse_address(f"jdbc:{given}").sqlalchemy_url()
    _, arguments = url.get_dialect()().create_connect_args(url)
    client: Any = pymysql.Connection(**arguments, defer_connect=True)

    assert client._ssl_required
    assert client.ctx.verify_mode == (ssl.CERT_REQUIRED if checks_certificate else ssl.CERT_NONE)
    assert client.ctx.check_hostname == checks_name
    assert any(made[-1].values()) == checks_certificate


@pytest.mark.parametrize("given", ["useSSL=false", "sslMode=DISABLED", "sslMode=PREFERRED", "useSSL=no"])
def test_tls_to_mysql_is_not_required_unless_asked_for(given: str) -> None:
    assert parse_address(f"jdbc:mysql://db/shop?{given}").options == {}
