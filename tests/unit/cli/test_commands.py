"""A command that is interrupted while Python imports what it is made of."""

from __future__ import annotations

import signal
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from penstock.cli import commands

#: Stops where the rest of the command is imported.
SLOW = """
import signal, sys, threading

# As in a terminal: in the background of a script it is ignored, and the tests with it.
signal.signal(signal.SIGINT, signal.default_int_handler)

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name in ("penstock.cli.worker.standalone", "penstock.cli.main"):
            print("importing", flush=True)
            threading.Event().wait(60)

sys.meta_path.insert(0, Slow())
from penstock.cli import commands
"""


@pytest.mark.parametrize("command", ["connect_standalone", "penstock"])
def test_sigint_while_a_command_is_imported_ends_it_quietly(command: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", f"{SLOW}\ncommands.{command}()"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"importing\n"
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, complaints) == (130, b"")


@pytest.mark.parametrize("before", [signal.default_int_handler, signal.SIG_IGN], ids=["default", "ignored"])
def test_when_it_is_imported_sigint_is_as_it_was(before: signal.Handlers) -> None:
    kept = signal.signal(signal.SIGINT, before)
    try:
        assert commands._imported("json").__name__ == "json"
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGINT, kept)


@pytest.mark.parametrize("name", ["penstock", "connect-standalone"])
def test_installed_commands_begin_there(name: str) -> None:
    (found,) = entry_points(group="console_scripts", name=name)

    assert found.module == "penstock.cli.commands"
    assert callable(found.load())
