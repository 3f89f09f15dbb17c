"""A session on a Spark Connect server: connection, settings, heartbeat, end.

The server belongs to somebody else: it may be restarted, and it is not ours to kill. A session that was lost is never
mended (a server that comes back has forgotten it); it is closed, which makes the calls that wait for it fail, and
another one is made. PySpark decides by the process between its two APIs, so a process has either classic or remote
sessions.
"""

from __future__ import annotations

import importlib.util
import logging
import socket
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from penstock.errors import SparkUnavailableException
from penstock.pipeline.spark.jvm import (
    DEFAULT_SETTINGS,
    REQUIRED_SETTINGS,
    JvmProbe,
    SessionRefusedException,
    brief,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

DEFAULT_PORT: Final = 15002
CONNECT_TIMEOUT_S: Final = 5.0
#: The first request to a new session takes a while, because the server creates it.
GREETING_WAIT_S: Final = 30.0
ANSWER_WAIT_S: Final = 1.0
#: The time in which a session must respond after a job on it has failed.
VERDICT_WAIT_S: Final = 5.0
#: A call is tried again for some three seconds, then the session counts as lost. PySpark's own policy goes on for ten
#: minutes, in which its task would look alive and move nothing.
_MAX_RETRIES: Final = 5
_MAX_BACKOFF_MS: Final = 2_000
#: Local data above the first of these is stored on the server until the session ends: a worker's session never does, so
#: batches travel inside of their plan, below the bound of a gRPC message. For the same reason no plan is kept.
_REMOTE_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.localRelationCacheThreshold": "100000000",
    "spark.connect.session.planCache.enabled": "false",
}
_PACKAGES: Final = ("grpc", "grpc_status", "google.rpc", "zstandard")


class RemoteSession:
    """The counterpart of ``DriverJvm`` for ``spark.remote``. Thread: the session thread; ``lost_by`` from any.

    Raises:
        SessionRefusedException: The address cannot be one, or a package is missing: trying again does not help.
        SparkUnavailableException: The server does not answer.
    """

    pid: int | None = None
    #: Others use the server, too.
    heap_bytes: int | None = None
    ran_out_of_memory = False

    def __init__(self, url: str, conf: Mapping[str, str]) -> None:
        host, port = self._address = _address(url)
        _require_packages()
        from pyspark.sql.connect.client.retries import DefaultPolicy

        try:
            socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
        except OSError as error:
            raise SparkUnavailableException(f"no Spark Connect server answers at {host}:{port}: {error}") from error
        self.session: SparkSession = _connect(url)
        self._client: Any = self.session.client
        self._client.set_retry_policies([DefaultPolicy(max_retries=_MAX_RETRIES, max_backoff=_MAX_BACKOFF_MS)])
        self._heartbeat = JvmProbe(self._ask)
        try:
            if not self._heartbeat.answers(GREETING_WAIT_S):
                raise SparkUnavailableException(
                    f"what listens at {host}:{port} does not answer as a Spark Connect server: "
                    f"{self._heartbeat.refused or f'no answer in {GREETING_WAIT_S:.0f} s'}"
                )
            self._configure(conf)
        except BaseException:
            self._client.close()
            raise

    def _configure(self, conf: Mapping[str, str]) -> None:
        for key, value in {**DEFAULT_SETTINGS, **_REMOTE_SETTINGS, **conf, **REQUIRED_SETTINGS}.items():
            if not key.startswith(("spark.sql.", "spark.connect.session.")):
                continue
            try:
                self.session.conf.set(key, value)
            except Exception as error:
                if key in REQUIRED_SETTINGS:
                    raise SessionRefusedException(
                        f"the Spark Connect server at {self._address[0]}:{self._address[1]} refuses {key}={value}, "
                        f"which results depend on: {brief(error)}"
                    ) from error
                log.debug("The Spark Connect server keeps its own %s: %s", key, brief(error))

    def _ask(self) -> None:
        self.session.conf.get("spark.sql.caseSensitive")

    def ended(self) -> str | None:
        """Describes how the session ended, if it is known to have."""
        refused = self._heartbeat.refused
        return None if refused is None else f"The session on the Spark Connect server is lost: {brief(refused)}"

    def answers(self) -> bool:
        """True if the server has answered the latest question; asks the next one."""
        return self._heartbeat.answers(ANSWER_WAIT_S)

    def lost_by(self, error: BaseException) -> bool:
        """True if a job failed because the session is gone: then a question fails too, or stays without answer."""
        return not JvmProbe(self._ask).answers(VERDICT_WAIT_S)

    def close(self) -> None:
        """Ends the session; one that does not answer is left to the server, which forgets it after a while."""
        try:
            if self.answers():
                self.session.stop()
            else:
                self._client.close()
        except Exception as error:
            log.debug("The session on the Spark Connect server did not end cleanly: %s", error)


def _connect(url: str) -> SparkSession:
    from pyspark.sql import SparkSession

    # These loggers' messages are also raised, and the handler of the error logs them.
    logging.getLogger("pyspark.sql.connect.client").setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")
    try:
        return SparkSession.builder.remote(url).create()
    except Exception as error:
        raise SessionRefusedException(f"spark.remote={_without_secrets(url)}: {brief(error)}") from error


def _address(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or DEFAULT_PORT
    except ValueError:
        parts, host, port = urlsplit(""), None, DEFAULT_PORT
    if parts.scheme != "sc" or not host:
        raise SessionRefusedException(
            f"spark.remote={_without_secrets(url)} is not the address of a Spark Connect server, which looks like "
            "sc://host:15002; for a session on this machine set spark.master instead"
        )
    return host, port


def _without_secrets(url: str) -> str:
    """The address without its parameters: one of them may be a token."""
    return url.partition(";")[0]


def _require_packages() -> None:
    missing = [name for name in _PACKAGES if not _installed(name)]
    if missing:
        raise SessionRefusedException(
            f"spark.remote needs the Python packages of Spark Connect ({', '.join(missing)} missing); "
            "install penstock[connect]"
        )


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
