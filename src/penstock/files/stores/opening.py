"""The store of an address. Main function: ``open_store``; ``Location`` is an address with its options. Any thread."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from penstock.errors import ConfigException, ConnectException
from penstock.files.stores.store import Store

if TYPE_CHECKING:
    from penstock.files.stores.s3 import S3Options

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
        from penstock.files.stores.directory import DirectoryStore

        return DirectoryStore(local_path(location.url))
    if location.s3 is not None:
        from penstock.files.stores.s3 import S3Store

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

    from penstock.files.stores.arrow import ArrowStore

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
