"""A test that is ended by its time limit inside a call of Java."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyspark.core.context
import pytest
from py4j.clientserver import JavaClient, JavaParameters, PythonParameters
from py4j.java_gateway import GatewayProperty
from tests.java_calls import disconnect, leaves_no_answer


class Slow:
    """A double of the JVM: answers a command with its name, and those called ``slow`` when it is told to."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.asked = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=[connection]))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as commands:
            for command in commands:
                if command == b"slow\n":
                    self.asked.set()
                    self.go_on.wait(10)
                try:
                    connection.sendall(b"!" + command)
                except OSError:
                    return

    def stop(self) -> None:
        self.go_on.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._threads:
            one.join(10)


class EndedError(BaseException):
    """As the failure of pytest-timeout, no ``Exception``."""


@pytest.fixture
def jvm() -> Iterator[Slow]:
    made = Slow()
    yield made
    made.stop()


@pytest.fixture
def client(jvm: Slow, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    parameters = JavaParameters(port=jvm.port)
    made = JavaClient(parameters, PythonParameters(), GatewayProperty(True, None))
    monkeypatch.setattr(pyspark.core.context.SparkContext, "_gateway", SimpleNamespace(_gateway_client=made))
    yield made
    disconnect()


@pytest.mark.parametrize("with_the_hook", [True, False])
def test_later_calls_have_their_own_answers(jvm: Slow, client: Any, with_the_hook: bool) -> None:
    def ends(number: int, frame: object) -> None:
        raise EndedError

    def interrupts(thread: int) -> None:
        jvm.asked.wait(10)
        signal.pthread_kill(thread, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, leaves_no_answer(ends) if with_the_hook else ends)
    try:
        assert client.send_command("first\n") == "first"
        threading.Thread(target=interrupts, args=[threading.get_ident()]).start()
        with pytest.raises(EndedError) as kept:
            client.send_command("slow\n")
        jvm.go_on.set()
        answers = [client.send_command(f"{name}\n") for name in ("a", "b")]
    finally:
        signal.signal(signal.SIGUSR1, before)

    # Without the hook it is as it was: pytest keeps the traceback, and that the connection.
    assert answers == (["a", "b"] if with_the_hook else ["slow", "a"])
    del kept


def test_the_time_limit_of_this_run_closes_the_connection() -> None:
    handler: Any = signal.getsignal(signal.SIGALRM)

    assert handler.__module__ == leaves_no_answer.__module__


def test_where_spark_was_never_started_there_is_nothing_to_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark.core.context.SparkContext, "_gateway", None)
    disconnect()
