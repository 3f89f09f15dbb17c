"""Settings for the location of tables: `LakeConfig`, the base of those of a sink. Values; any thread."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from penstock.config import AbstractConfig, CaseInsensitiveValidString, Importance, Password, Range, setting

if TYPE_CHECKING:
    from penstock.connectors.tables.lake import Lake

#: Catalogs by the names of Java's classes (the part after the last dot).
_CATALOGS: Final = {
    "RESTCatalog": "rest",
    "HiveCatalog": "hive",
    "GlueCatalog": "glue",
    "JdbcCatalog": "sql",
    "DynamoDbCatalog": "dynamodb",
    "BigQueryMetastoreCatalog": "bigquery",
}


#: The property of a catalog for the time limit of its answers, in seconds.
TIMEOUT: Final = "penstock.timeout"


class TableFormat(Enum):
    """The formats of tables."""

    DELTA = "delta"
    ICEBERG = "iceberg"


class LakeConfig(AbstractConfig):
    """The settings for the location of tables."""

    table_format: TableFormat = setting(
        default=TableFormat.DELTA,
        validator=CaseInsensitiveValidString("delta", "iceberg"),
        importance=Importance.HIGH,
        doc="The format of the tables: delta, or iceberg, which settings that begin with iceberg. also say.",
    )
    url: str = setting(
        default="",
        importance=Importance.HIGH,
        doc="Where the tables are: a path, file:///PATH, s3://BUCKET/PREFIX, or another address that the library of "
        "the format knows. Of Iceberg it is the warehouse of the catalog.",
    )
    catalog_name: str = setting(default="iceberg", doc="The name of the Iceberg catalog.")
    namespace: str = setting(default="default", doc="The Iceberg namespace of tables whose names have no dot.")
    store_url: str = setting(default="", doc="The address of another store than Amazon's that speaks S3.")
    s3_region: str = setting(default="", doc="The region of the bucket; left out: as the library finds it.")
    s3_path_style_access_enabled: bool = setting(
        default=True, doc="With store.url: the bucket stands in the path of addresses, not in the name of the host."
    )
    aws_access_key_id: str = setting(
        default="", doc="Who logs in at S3; left out: the default chain of the library (environment, profile, role)."
    )
    aws_secret_access_key: Password | None = setting(default=None, doc="The secret that belongs to it.")
    aws_session_token: Password | None = setting(default=None, doc="The token, where they are of a session.")
    store_timeout_ms: int = setting(
        default=20_000,
        validator=Range.at_least(100),
        doc="How long a store or a catalog may take to answer before a commit ends, and is made again.",
    )

    @property
    def format(self) -> TableFormat:
        """The format of the tables."""
        return self.table_format

    def faults(self, properties: Mapping[str, object]) -> list[tuple[str, str]]:
        """See ``AbstractConfig``."""
        if text := missing_library(self.format):
            return [("table.format", text)]
        if self.format is TableFormat.DELTA and not self.url:
            return [("url", "says where the tables are: a path, s3://BUCKET/PREFIX, or another address")]
        return []

    def catalog_properties(self, properties: Mapping[str, object]) -> dict[str, str]:
        """The properties of the catalog, by pyiceberg's names."""
        found: dict[str, str] = {}
        if self.url:
            found["warehouse"] = self.url if "://" in self.url else f"file://{_absolute(self.url)}"
        if urlsplit(self.url).scheme in ("s3", "s3a", "s3n") or self.store_url or self.aws_access_key_id:
            found |= _without_empty(
                {
                    "s3.endpoint": self.store_url,
                    "s3.region": self.s3_region or ("us-east-1" if self.store_url else ""),
                    "s3.access-key-id": self.aws_access_key_id,
                    "s3.secret-access-key": _secret(self.aws_secret_access_key),
                    "s3.session-token": _secret(self.aws_session_token),
                    "s3.force-virtual-addressing": str(not self.s3_path_style_access_enabled) if self.store_url else "",
                }
            )
        given = below(properties, "iceberg.catalog.")
        # PyArrow is the file system here, whatever class Java had for it.
        given.pop("io-impl", None)
        if implementation := given.pop("catalog-impl", ""):
            given.setdefault("type", _CATALOGS.get(implementation.rpartition(".")[2], implementation))
        if given.get("type") == "jdbc":
            given["type"] = "sql"
        if "client.region" in given:
            given.setdefault("s3.region", given["client.region"])
        if given.get("uri", "").startswith("jdbc:"):
            given["uri"] = re.sub(r"^sqlite:(?!//)", "sqlite:///", given["uri"].removeprefix("jdbc:"))
        found |= given
        if "uri" not in found and "type" not in found and urlsplit(self.url).scheme in ("", "file") and self.url:
            # A directory is a catalog by itself: an SQLite file lists its tables.
            found |= {"type": "sql", "uri": f"sqlite:///{_absolute(self.url)}/catalog.db"}
        return found

    def catalog_limits(self) -> dict[str, str]:
        """The properties of any catalog that limit the time of its requests, and of those to its store."""
        half_s = self.store_timeout_ms / 2000
        return {
            "s3.connect-timeout": str(min(5.0, half_s)),
            "s3.request-timeout": str(half_s),  # The client makes two attempts.
            "s3.retry-strategy-impl": f"{__package__}.iceberg_clients.TwoAttempts",
            TIMEOUT: str(2 * half_s),
        }

    def storage_options(self, properties: Mapping[str, object]) -> dict[str, str]:
        """The options of the object store, by deltalake's names."""
        found: dict[str, str] = {}
        if urlsplit(self.url).scheme in ("s3", "s3a"):
            found = _without_empty(
                {
                    "AWS_ENDPOINT_URL": self.store_url,
                    "AWS_ALLOW_HTTP": "true" if self.store_url.startswith("http://") else "",
                    "AWS_REGION": self.s3_region or ("us-east-1" if self.store_url else ""),
                    "AWS_ACCESS_KEY_ID": self.aws_access_key_id,
                    "AWS_SECRET_ACCESS_KEY": _secret(self.aws_secret_access_key),
                    "AWS_SESSION_TOKEN": _secret(self.aws_session_token),
                    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": str(not self.s3_path_style_access_enabled).lower(),
                }
            )
            # The task waits for an unreachable store, not the library, which would take minutes.
            limit, connect = f"{self.store_timeout_ms}ms", f"{min(5000, self.store_timeout_ms)}ms"
            found |= {"max_retries": "3", "retry_timeout": limit, "timeout": limit, "connect_timeout": connect}
        return {**found, **below(properties, "delta.storage.")}


def missing_library(kind: TableFormat) -> str:
    """A text that names the missing library; empty if it is installed."""
    library, extra = ("deltalake", "delta") if kind is TableFormat.DELTA else ("pyiceberg", "iceberg")
    return "" if find_spec(library) else f"{kind.value} needs the library {library}: pip install 'penstock[{extra}]'"


def open_lake(
    config: LakeConfig,
    properties: Mapping[str, object],
    connector: str,
    *,
    codec: str = "zstd",
    file_bytes: int = 128 << 20,
    renew: Callable[[], Mapping[str, object]] | None = None,
    renamed_from: str = "",
    is_shared: bool = False,
    cluster: str | None = None,
) -> Lake:
    """Opens the lake of the settings, without a request.

    Args:
        config: The settings, parsed.
        properties: The unparsed settings.
        connector: The name of the connector.
        codec: The compression of files that are written.
        file_bytes: Their size.
        renew: Returns the settings with newer credentials, for each Delta table that is opened.
        renamed_from: The former name of the connector.
        is_shared: True if other connectors may write the same topics into the tables.
        cluster: The id of the Kafka cluster; None: connectors of this name are one in all clusters.
    """
    from penstock.connectors.tables.lake import Writer

    writer = Writer(connector, renamed_from, is_shared, cluster)
    made = {**below(properties, "iceberg.tables.auto-create-props."), **below(properties, "table.properties.")}

    def newest() -> tuple[LakeConfig, Mapping[str, object]]:
        if renew is None:
            return config, properties
        found = renew()
        return type(config).parse(found), found

    if config.format is TableFormat.DELTA:
        from penstock.connectors.tables.delta import DeltaLake

        def options() -> dict[str, str]:
            there, found = newest()
            return there.storage_options(found)

        return DeltaLake(config.url, writer, options, made, codec, file_bytes)
    from penstock.connectors.tables.iceberg import IcebergLake

    first = config.catalog_properties(properties)
    # A relative path means the same directory for as long as the task runs.
    local = {name: text for name, text in first.items() if text.startswith(("file:", "sqlite:"))}

    def catalog() -> dict[str, str]:
        there, found = newest()
        return {**there.catalog_limits(), **there.catalog_properties(found), **local}

    made.setdefault("write.parquet.compression-codec", "uncompressed" if codec == "none" else codec)
    return IcebergLake(config.catalog_name, catalog, writer, config.namespace, made, file_bytes)


def below(properties: Mapping[str, object], prefix: str) -> dict[str, str]:
    """The settings that begin with a prefix, without it."""
    return {
        name.removeprefix(prefix): str(value)
        for name, value in properties.items()
        if name.startswith(prefix) and name != prefix and value is not None
    }


def terms(text: str) -> list[str]:
    """Splits a list at commas outside of parentheses.

    >>> terms("day(ts), bucket(id, 16),kind")
    ['day(ts)', 'bucket(id, 16)', 'kind']
    """
    return [one.strip() for one in re.split(r",(?![^()]*\))", text) if one.strip()]


def _absolute(url: str) -> str:
    from pathlib import Path

    from penstock.files.location import local_path

    return str(Path(local_path(url)).absolute())


def _secret(password: Password | None) -> str:
    return password.value if password else ""


def _without_empty(values: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}
