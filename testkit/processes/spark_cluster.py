"""A standalone cluster of Spark on this machine, made of the classes that come with PySpark.

Main types: ``SparkProcess``, a master or a Spark worker that a test starts, kills and starts again; ``SparkCluster``,
one of each. Main value: ``QUICKLY``, options of their JVMs.

Thread: the test's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import pyspark

from penstock.broker import free_port
from penstock.pipeline.spark.jvm import archive_option
from testkit.spark_settings import QUICK_START

SPARK_CLASS: Final = Path(pyspark.__file__).parent / "bin" / "spark-class"
#: The JVM's first compiler alone: no process of Spark runs for long here. The classes are those of any session.
QUICKLY: Final = f"{QUICK_START['spark.driver.extraJavaOptions']} {archive_option()}".replace('"', "").rstrip()
_START_S: Final = 60.0
_END_S: Final = 20.0


class SparkProcess:
    """A process of Spark.

    Args:
        directory: Where its log and its work go.
        name: Of its log.
        said: What it says in its log once it serves.
        arguments: The class below ``org.apache.spark.deploy``, and what it takes.
    """

    def __init__(self, directory: Path, name: str, said: str, *arguments: str) -> None:
        self._directory = directory
        self._said = said
        self._arguments = arguments
        self.log = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Starts it and waits until it serves."""
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_WORKER_DIR": str(self._directory / "work"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICKLY,
        }
        with self.log.open("wb") as out:
            # Its executors are in its group, and end with it.
            process = self._process = subprocess.Popen(
                [str(SPARK_CLASS), f"org.apache.spark.deploy.{self._arguments[0]}", *self._arguments[1:]],
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self._directory,
                process_group=0,
            )
        deadline, pause = time.monotonic() + _START_S, threading.Event()
        while self._said not in (text := self.log.read_text(encoding="utf-8", errors="replace")):
            if process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(text[-3000:])
            pause.wait(0.1)
        return self

    @property
    def pid(self) -> int | None:
        """Its process id; None if it does not run."""
        return None if self._process is None else self._process.pid

    def kill(self) -> None:
        """Ends it at once, with its executors."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ends it."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(_END_S)


class SparkCluster:
    """A master and a Spark worker; a context manager.

    Args:
        directory: For both.
        cores: Of the Spark worker.
        memory: Of the Spark worker, for its executors.

    Attributes:
        directory: The same; the logs of executors are below ``work``.
        url: The address of the master.
    """

    def __init__(self, directory: Path, cores: int = 2, memory: str = "1g") -> None:
        directory.mkdir()
        self.directory = directory
        port, self._ui_port, here = free_port(), free_port(), ("--host", "127.0.0.1", "--webui-port")
        self.url = f"spark://127.0.0.1:{port}"
        self.master = SparkProcess(
            directory, "master", "New state: ALIVE", "master.Master", "--port", str(port), *here, str(self._ui_port)
        )
        self.worker = SparkProcess(
            directory,
            "worker",
            "Successfully registered with master",
            *("worker.Worker", "--cores", str(cores), "--memory", memory, *here, "0", self.url),
        )

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings of a session there."""
        return {
            "spark.master": self.url,
            "spark.master.ui.port": str(self._ui_port),
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": QUICKLY,
        }

    def __enter__(self) -> Self:
        self.master.start()
        try:
            self.worker.start()
        except BaseException:
            self.master.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.worker.stop()
        self.master.stop()
