"""The address of files: its settings, and the store for it. Any thread.

Source: the settings of Confluent's connectors for Amazon S3, Google Cloud Storage, Azure Blob Storage and HDFS.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib.util import find_spec
from typing import Final
from urllib.parse import unquote, urlsplit

from penstock.config import AbsentSetting, AbstractConfig, Importance, Password, Range, ValidString, setting
from penstock.errors import ConfigException, ConnectException
from penstock.files.s3 import S3Options
from penstock.files.store import Store

#: The time, in seconds, that a store has for an answer while a configuration is checked.
_LOOK_S = 10.0
#: Schemes that PyArrow has file systems for.
_ARROW = ("gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")


@dataclass(frozen=True, slots=True)
class Location:
    """An address, with its options.

    Attributes:
        url: The address.
        s3: The options, if it is a bucket of S3.
        account: Of Azure.
        secret: Its key.
        timeout_s: The time that the store may take to answer, in seconds.

    Source: Penstock's own.
    """

    url: str
    s3: S3Options | None = None
    account: str = ""
    secret: str | None = None
    timeout_s: float = 20.0

    @property
    def scheme(self) -> str:
        """The scheme of the address; ``file`` of a path."""
        return urlsplit(self.url).scheme.lower() or "file"

    def tried_once(self) -> Location:
        """The same, for a look whether the store is there: it has less time, and the client makes one request."""
        limit_s = min(_LOOK_S, self.timeout_s)
        s3 = None if self.s3 is None else replace(self.s3, retries=0, timeout_s=limit_s)
        return replace(self, s3=s3, timeout_s=limit_s)

    def missing(self) -> str:
        """The reason why no store can be created: a library that is not installed, a login of the wrong form.

        Empty if there is none.

        >>> Location("nothing://a").missing()[:42]
        'No file system for "nothing:" is supported'
        """
        scheme = self.scheme
        if scheme in ("s3", "s3a", "s3n"):
            needed, extra = "boto3", "s3"
        elif scheme in ("abfs", "abfss"):
            return _fault_of_azure_login(self.url, self.account, self.secret)
        elif scheme == "file" or scheme in _ARROW:
            return ""
        else:
            needed, extra = "fsspec", "fsspec"
            if find_spec(needed):
                from fsspec.registry import known_implementations

                if scheme in known_implementations:
                    return ""
                return f'No file system for "{scheme}:" is supported: use file, s3, gs, abfs, hdfs or one of fsspec'
            return (
                f'No file system for "{scheme}:" is supported: use file, s3, gs, abfs or hdfs, or install '
                "fsspec (pip install fsspec) for more"
            )
        if find_spec(needed):
            return ""
        return f"{scheme}: needs the library {needed}: pip install 'penstock[{extra}]'"


def open_store(location: Location, renew: Callable[[], Location] | None = None) -> Store:
    """Creates the store for an address, without a request to it.

    Args:
        location: The address.
        renew: Returns the address with newer credentials.

    Raises:
        ConfigException: The address is invalid, or a library is missing.
        ConnectException: The file system cannot be created.
    """
    missing = location.missing()
    if missing:
        raise ConfigException(missing)
    if location.scheme == "file":
        from penstock.files.store import DirectoryStore

        return DirectoryStore(local_path(location.url))
    if location.s3 is not None:
        from penstock.files.s3 import S3Store

        def options() -> S3Options:
            found = location if renew is None else renew()
            assert found.s3 is not None
            return found.s3

        return S3Store(location.s3, options)
    return _of_arrow(location)


def local_path(url: str) -> str:
    """The path of a ``file:`` address, or of a path.

    >>> local_path("file:///a/b%20c"), local_path("a/b")
    ('/a/b c', 'a/b')
    """
    parts = urlsplit(url)
    return unquote(parts.netloc + parts.path) if parts.scheme == "file" else url


def _of_arrow(location: Location) -> Store:
    import pyarrow as pa
    from pyarrow import fs

    from penstock.files.arrow import ArrowStore

    parts = urlsplit(location.url)
    path = f"{parts.netloc}{parts.path}"
    limit_s = location.timeout_s
    try:
        match location.scheme:
            case "gs" | "gcs":
                return ArrowStore(
                    fs.GcsFileSystem(retry_time_limit=timedelta(seconds=limit_s)), path, location.url, limit_s
                )
            case "abfs" | "abfss":
                account = _azure_account(location.url, location.account)
                container = parts.username or parts.netloc.split("@")[0]
                system = fs.AzureFileSystem(account_name=account, account_key=location.secret)
                return ArrowStore(system, f"{container}{parts.path}", location.url, limit_s)
            case "hdfs" | "viewfs":
                system = fs.HadoopFileSystem.from_uri(location.url)
                return ArrowStore(system, parts.path, location.url, limit_s)
            case _:
                from fsspec.core import url_to_fs

                # Host, port and user of the address, where the file system has them, and the path in it.
                system, path = url_to_fs(location.url)
                return ArrowStore(fs.PyFileSystem(fs.FSSpecHandler(system)), path, location.url, limit_s)
    except (OSError, pa.ArrowException, ImportError, ValueError, TypeError) as error:
        why = _NO_HADOOP if "libjvm" in str(error) or "libhdfs" in str(error) else error
        raise ConnectException(f"The file system of {location.url} cannot be made: {why}") from error


#: PyArrow lists some thirty paths on which it did not find the client's libraries.
_NO_HADOOP = (
    "PyArrow found no Hadoop client (libjvm.so, libhdfs.so) on this machine: install Java and Hadoop, and start the "
    "worker with JAVA_HOME, HADOOP_HOME and CLASSPATH, which `hadoop classpath --glob` prints"
)


def _azure_account(url: str, account: str) -> str:
    """The account of an address ``abfss://CONTAINER@ACCOUNT.dfs.core.windows.net``, unless a setting names it.

    >>> _azure_account("abfss://c@a.dfs.core.windows.net/x", ""), _azure_account("abfss://c/x", "")
    ('a', '')
    """
    parts = urlsplit(url)
    return account or ((parts.hostname or "").split(".")[0] if parts.username else "")


def _fault_of_azure_login(url: str, account: str, key: str | None) -> str:
    """The part of a login that Azure's client could not read, as a text.

    The client decodes the key at its first request. On one of PyArrow's own threads its error would end the process.
    """
    name = _azure_account(url, account)
    if not name:
        return f"{url} names no account: write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"
    try:
        b64decode(key or "", validate=True)
    except ValueError as error:
        return (
            f"The key of the Azure account {name} is not in Base64 ({error}): copy it as the portal shows it, or leave "
            "it out for the default chain of logins"
        )
    return ""


OFF: Final = ("false",)
#: Settings of stores in Java's connectors that are not there.
STORES_ABSENT: Final[Mapping[str, AbsentSetting]] = {
    "hdfs.authentication.kerberos": AbsentSetting(
        "log in with kinit: the Hadoop client takes the ticket of its cache", OFF
    ),
    "s3.sse.customer.key": AbsentSetting("keys of customers are not there; use s3.ssea.name=aws:kms"),
    "s3.credentials.provider.class": AbsentSetting(
        "classes of Java do not run here; the default chain of boto3 finds environment, profiles and roles",
        ("", "com.amazonaws.auth.DefaultAWSCredentialsProviderChain"),
    ),
    "gcs.credentials.path": AbsentSetting("name the file in the environment: GOOGLE_APPLICATION_CREDENTIALS"),
    "gcs.credentials.json": AbsentSetting("write it into a file, and name that in GOOGLE_APPLICATION_CREDENTIALS"),
    "azblob.connection.string": AbsentSetting("set azblob.account.name and azblob.account.key"),
}


class StoreConfig(AbstractConfig):
    """The address of a store, and how it is spoken to.

    Source: the settings of Confluent's connectors for Amazon S3, Google Cloud Storage, Azure Blob Storage and HDFS.
    """

    url: str = setting(
        default="",
        importance=Importance.HIGH,
        doc="Where the files are: a path, file:///PATH, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, "
        "abfss://CONTAINER@ACCOUNT/PREFIX, hdfs://HOST:PORT/PATH, or an address of fsspec.",
    )
    s3_bucket_name: str = setting(default="", importance=Importance.HIGH, doc="The bucket, if url does not say it.")
    s3_region: str | None = setting(default=None, doc="The region of the bucket; left out: as boto3 finds it.")
    store_url: str = setting(
        default="", doc="The address of another store than Amazon's that speaks S3; without a bucket: the same as url."
    )
    s3_path_style_access_enabled: bool = setting(
        default=True, doc="The bucket stands in the path of addresses, not in the name of the host."
    )
    aws_access_key_id: str | None = setting(
        default=None, doc="Who logs in at S3; left out: the default chain of boto3 (environment, profile, role)."
    )
    aws_secret_access_key: Password | None = setting(default=None, doc="The secret that belongs to it.")
    aws_session_token: Password | None = setting(default=None, doc="The token, where they are of a session.")
    s3_part_size: int = setting(
        default=26_214_400, validator=Range.at_least(5 << 20), doc="The bytes of a part of a multipart upload."
    )
    s3_part_retries: int = setting(
        default=3, validator=Range.at_least(0), doc="How often the client tries again by itself."
    )
    s3_ssea_name: str = setting(
        default="", validator=ValidString("", "AES256", "aws:kms"), doc="The encryption by the server."
    )
    s3_sse_kms_key_id: str = setting(default="", doc="The key of s3.ssea.name=aws:kms.")
    s3_acl_canned: str = setting(default="", importance=Importance.LOW, doc="A canned ACL of objects.")
    s3_proxy_url: str = setting(default="", importance=Importance.LOW, doc="The address of a proxy.")
    s3_ca_location: str = setting(
        default="", doc="A file with the authorities whose certificates are trusted; left out: those of boto3."
    )
    gcs_bucket_name: str = setting(default="", doc="The bucket of Google Cloud Storage, if url does not say it.")
    azblob_container_name: str = setting(default="", doc="The container of Azure, if url does not say it.")
    azblob_account_name: str = setting(default="", doc="The account of Azure.")
    azblob_account_key: Password | None = setting(default=None, doc="Its key; left out: Azure's default chain.")
    store_timeout_ms: int = setting(
        default=20_000,
        validator=Range.at_least(100),
        doc="How long a store may take to answer before the call ends, and is made again after retry.backoff.ms.",
    )
    hdfs_url: str = setting(default="", doc="The address of HDFS, if url does not say it.")

    def location(self) -> Location:
        """The address of the store, with its options."""
        secret = self.azblob_account_key.value if self.azblob_account_key else None
        url = self.url or self.hdfs_url
        if not url and self.s3_bucket_name:
            url = f"s3://{self.s3_bucket_name}"
        elif not url and self.gcs_bucket_name:
            url = f"gs://{self.gcs_bucket_name}"
        elif not url and self.azblob_container_name:
            url = f"abfss://{self.azblob_container_name}@{self.azblob_account_name}.dfs.core.windows.net"
        elif not url and not self._is_endpoint:
            url = self.store_url
        scheme, _, rest = url.partition("://")
        s3 = None
        if scheme.lower() in ("s3", "s3a", "s3n"):
            bucket, _, prefix = rest.partition("/")
            s3 = self._s3(bucket, prefix.strip("/"))
        return Location(url, s3, self.azblob_account_name, secret, self.store_timeout_ms / 1000)

    @property
    def _is_endpoint(self) -> bool:
        """True if ``store.url`` is the address of a server that has buckets."""
        return self.store_url.partition("://")[0].lower() in ("http", "https")

    def missing_place(self, otherwise: str) -> tuple[str, str]:
        """The setting that would say where the files are, and a text for people.

        Args:
            otherwise: The text for ``url``.
        """
        if self._is_endpoint:
            return "s3.bucket.name", f"has no value, and {self.store_url} (store.url) is a store with buckets"
        return "url", otherwise

    def _s3(self, bucket: str, prefix: str) -> S3Options:
        return S3Options(
            bucket,
            prefix,
            self.s3_region or None,
            self.store_url or None,
            self.s3_path_style_access_enabled,
            self.aws_access_key_id or None,
            self.aws_secret_access_key.value if self.aws_secret_access_key else None,
            self.aws_session_token.value if self.aws_session_token else None,
            self.s3_ca_location or None,
            self.s3_part_size,
            self.s3_ssea_name,
            self.s3_sse_kms_key_id,
            self.s3_acl_canned,
            self.s3_part_retries,
            self.s3_proxy_url,
            self.store_timeout_ms / 1000,
        )
