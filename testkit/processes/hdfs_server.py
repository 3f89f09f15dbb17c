"""HDFS on one node as two processes, a name node and a data node, for tests: its WebHDFS is what clients speak to.

Main type: `HdfsServer`; `wanted` says whether tests of it run. The jars are fetched on first use, as those of the
embedded broker are. Thread: the caller's.
"""

from __future__ import annotations

import os
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from penstock.broker import free_port, resolve_jars
from penstock.broker.jars import find_java

#: Tests of HDFS run where this is set: they take a quarter of a minute, most of it the start of Java.
WANTED: Final = "PENSTOCK_HDFS"
COORDINATES: Final = tuple(f"org.apache.hadoop:hadoop-{one}:3.4.2" for one in ("hdfs", "hdfs-client", "common"))
_OPENED: Final = ("java.lang", "java.net", "java.util", "java.io", "java.util.concurrent", "java.security")
_TIME_S: Final = 120.0
_LOG: Final = """log4j.rootLogger=WARN,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%p %c: %m%n
"""


def wanted() -> bool:
    """True if tests of HDFS run."""
    return bool(os.environ.get(WANTED))


class HdfsServer:
    """A name node and a data node on the loopback address, without Kerberos; as a context manager started and stopped.

    Args:
        directory: Where their files and logs are.
    """

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        """The address of its root for fsspec."""
        return f"webhdfs://hadoop@127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends both with SIGKILL."""
        for one in self._processes:
            one.kill()
        for one in self._processes:
            one.wait()
        self._processes = []

    @property
    def log(self) -> str:
        """The end of what they have printed."""
        return (self._directory / "log").read_text(errors="replace")[-3000:]

    def _start(self) -> None:
        configuration = self._directory / "configuration"
        configuration.mkdir(parents=True, exist_ok=True)
        rows = (f"<property><name>{name}</name><value>{text}</value></property>" for name, text in self._site().items())
        (configuration / "hdfs-site.xml").write_text(f"<configuration>{''.join(rows)}</configuration>")
        for one in ("hdfs", "datanode"):  # Pages for people, which only Hadoop's archive has.
            (configuration / "webapps" / one).mkdir(parents=True, exist_ok=True)
        (configuration / "log4j.properties").write_text(_LOG)
        class_path = os.pathsep.join(map(str, (configuration, *resolve_jars(COORDINATES))))
        opened = [f"--add-opens=java.base/{one}=ALL-UNNAMED" for one in _OPENED]
        memory = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        java = [str(find_java()), *memory, *opened, "-cp", class_path]
        node = "org.apache.hadoop.hdfs.server"
        with (self._directory / "log").open("ab") as log:
            format_ = [*java, f"{node}.namenode.NameNode", "-format", "-force"]
            subprocess.run(format_, stdout=log, stderr=log, cwd=self._directory, timeout=_TIME_S, check=True)
            for kind in ("namenode.NameNode", "datanode.DataNode"):
                command = [*java, f"{node}.{kind}"]
                self._processes.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=self._directory))
        began = time.monotonic()
        while not self._has_a_data_node():
            assert all(one.poll() is None for one in self._processes), self.log
            assert time.monotonic() - began < _TIME_S, f"HDFS does not answer\n{self.log}"
            time.sleep(0.2)

    def _site(self) -> dict[str, str]:
        local = "127.0.0.1"
        rpc = f"{local}:{free_port()}"
        return {
            "fs.defaultFS": f"hdfs://{rpc}",
            "dfs.namenode.rpc-address": rpc,
            "dfs.namenode.http-address": f"{local}:{self.port}",
            "dfs.namenode.name.dir": f"file://{self._directory}/name",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.namenode.safemode.extension": "0",
            "dfs.datanode.data.dir": f"file://{self._directory}/data",
            "dfs.datanode.hostname": local,
            **{f"dfs.datanode.{name}address": f"{local}:{free_port()}" for name in ("", "http.", "ipc.")},
            "dfs.replication": "1",
            "dfs.permissions.enabled": "false",
        }

    def _has_a_data_node(self) -> bool:
        asked = f"http://127.0.0.1:{self.port}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystem"
        try:
            with urllib.request.urlopen(asked, timeout=5) as answer:
                return b'"NumLiveDataNodes" : 1' in answer.read()
        except (urllib.error.URLError, OSError):
            return False
