"""A Spark Connect server for tests: a process of its own on a free port, which ends with its owner.

Main type: ``ConnectServer``. Thread: one owner.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyspark

from penstock.broker import free_port
from penstock.broker.process import OwnerGuard
from penstock.pipeline.spark.jvm import archive_option
from testkit.spark_settings import QUICK_START

START_TIMEOUT_S: Final = 240.0
_CLASS: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
#: PySpark's own variables would make a server a client of another one.
_NOT_FOR_SERVERS: Final = ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "PYSPARK_GATEWAY_PORT")


class ConnectServer:
    """Starts a server and kills it at the end.

    Args:
        directory: Where the server writes its log and scratch files.
        master: Its Spark master.
        port: Where it listens; 0 = a free port. A server started again on the port of an earlier one takes its place.
    """

    def __init__(self, directory: Path, *, master: str = "local[2]", port: int = 0) -> None:
        self._directory = directory
        self._master = master
        self.port = port or free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: OwnerGuard | None = None

    @property
    def url(self) -> str:
        """The value of ``spark.remote``."""
        return f"sc://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Starts the process and waits until it listens.

        Raises:
            RuntimeError: It ended, or does not listen in time; with the end of its log.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_SERVERS}
        environment |= {"SPARK_CONNECT_MODE": "0", "PYSPARK_PYTHON": sys.executable}
        self._guard = OwnerGuard()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command(), cwd=self._directory, env=environment, stdout=log, stderr=subprocess.STDOUT
            )
        self._guard.watch(self._process.pid)
        self._await()
        return self

    def kill(self) -> None:
        """Ends it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(20)
            self._process = None
        if self._guard is not None:
            self._guard.release()
            self._guard = None

    def freeze(self) -> None:
        """Stops it in its tracks: connections stay open, nothing answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def _log(self) -> Path:
        return self._directory / "server.log"

    def _command(self) -> list[str]:
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": " ".join([*QUICK_START.values(), archive_option()]).rstrip(),
            "spark.ui.enabled": "false",
            "spark.local.dir": str(self._directory),
            "spark.sql.warehouse.dir": str(self._directory / "warehouse"),
        }
        # The launcher replaces itself by the JVM: its process id is the server's.
        command = [os.path.join(os.path.dirname(pyspark.__file__), "bin", "spark-submit"), "--class", _CLASS]
        command += ["--master", self._master, "--name", "penstock-test-server"]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        return [*command, "spark-internal"]

    def _await(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        again = threading.Event()
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
            except OSError:
                again.wait(0.2)
            else:
                return
        text = self._log.read_text(errors="replace")[-2000:]
        self.kill()
        raise RuntimeError(f"the Spark Connect server does not listen on port {self.port}: {text}")
