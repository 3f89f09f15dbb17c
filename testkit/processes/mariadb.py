"""A MariaDB server for tests, from the programs of Debian's package ``mariadb-server`` where that is installed.

Main type: `MariaDb`; `is_installed` says if there is one. Thread: the caller's.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pymysql

from penstock.broker.jars import free_port

_TIME_S: Final = 60
#: The data is there after a kill, but not after a loss of power; a client may send no files.
_SETTINGS: Final = (
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-buffer-pool-size=32M",
    "--innodb-flush-method=nosync",
    "--skip-log-bin",
    "--local-infile=0",
    "--bind-address=127.0.0.1",
)


def is_installed() -> bool:
    """True if the programs of a server are on the PATH."""
    return _program("mariadbd") is not None and _program("mariadb-install-db") is not None


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")


class MariaDb:
    """A server on the loopback address, with the user ``root`` without a password and the database ``shop``.

    As a context manager it is started and stopped.

    Args:
        directory: Where its data and its log are; one with data is continued.
        port: Where clients connect; a free one if left out.
    """

    def __init__(self, directory: Path, port: int | None = None) -> None:
        self.directory = directory.absolute()
        self.port = free_port() if port is None else port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def jdbc_url(self) -> str:
        """The address of the database ``shop``, with its user."""
        return f"jdbc:mariadb://127.0.0.1:{self.port}/shop?user=root"

    @property
    def log(self) -> str:
        """Returns the log of the server."""
        path = self.directory / "log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Makes the data directory if there is none, starts the server and waits until it answers.

        Raises:
            AssertionError: It does not start; with what it printed.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        data = self.directory / "data"
        with (self.directory / "log").open("ab") as log:
            if not data.exists():
                install = [str(_program("mariadb-install-db")), "--no-defaults", f"--datadir={data}"]
                install += ["--auth-root-authentication-method=normal", "--skip-test-db", "--user=root"]
                done = subprocess.run(install, stdout=log, stderr=log, timeout=_TIME_S, check=False)
                assert done.returncode == 0, self.log
            command = [str(_program("mariadbd")), "--no-defaults", "--user=root", f"--datadir={data}", *_SETTINGS]
            command += [
                f"--port={self.port}",
                f"--socket={self.directory / 's'}",
                f"--pid-file={self.directory / 'pid'}",
            ]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + _TIME_S
        while True:
            assert self._process.poll() is None, self.log
            try:
                with closing(self.connect(None)) as connection, connection.cursor() as cursor:
                    cursor.execute("CREATE DATABASE IF NOT EXISTS shop CHARACTER SET utf8mb4")
                return
            except pymysql.MySQLError:
                assert time.monotonic() < deadline, self.log
                time.sleep(0.05)

    def stop(self) -> None:
        """Ends the server in order, if it runs."""
        self._end(kill=False)

    def kill(self) -> None:
        """Ends it as a crash does; `start` starts it again."""
        self._end(kill=True)

    def _end(self, kill: bool) -> None:
        process, self._process = self._process, None
        if process is not None:
            (process.kill if kill else process.terminate)()
            process.wait(_TIME_S)

    def connect(self, database: str | None = "shop") -> pymysql.Connection[Any]:
        """A connection of the driver, which commits each statement."""
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", database=database, autocommit=True, charset="utf8mb4"
        )

    def execute(self, *statements: str) -> None:
        """Runs statements, each in a transaction of its own."""
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return [tuple(row) for row in cursor.fetchall()]
