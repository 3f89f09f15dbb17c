"""A quick protoc for tests that compile many schemas; those of how it is called have the one in a process."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import grpc_tools
import pytest
from grpc_tools import protoc

INCLUDED = Path(grpc_tools.__file__).with_name("_proto")


@pytest.fixture
def protoc_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiles in this process, in a twentieth of the time. What is refused goes to a process, for its words."""
    run = subprocess.run

    def compiled(command: list[str], **more: Any) -> subprocess.CompletedProcess[bytes]:
        at = command.index("grpc_tools.protoc")
        if protoc.main([*command[at:], f"-I{INCLUDED}"]) == 0:
            return subprocess.CompletedProcess(command, 0, b"", b"")
        return run(command, **more)

    monkeypatch.setattr(subprocess, "run", compiled)
