"""Commands that start a worker, for tests of how they end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: Nobody listens there.
NO_BROKER = "127.0.0.1:1"
CONVERTER = "org.apache.kafka.connect.storage.StringConverter"


def command(mode: str) -> list[str]:
    """The command of a worker: ``standalone`` or ``distributed``."""
    return [sys.executable, "-m", f"penstock.cli.worker.{mode}"]


def worker_file(directory: Path, **changes: str | None) -> str:
    """A worker's file of what both modes need; ``group_id`` stands for ``group.id``, None leaves a setting out."""
    settings: dict[str, str | None] = {
        "bootstrap.servers": NO_BROKER,
        "key.converter": CONVERTER,
        "value.converter": CONVERTER,
        "listeners": "http://127.0.0.1:0",
        **{name.replace("_", "."): value for name, value in changes.items()},
    }
    path = directory / "worker.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items() if value is not None))
    return str(path)


def ended(mode: str, *arguments: str) -> tuple[int, str]:
    """Exit code and output of a worker that ends by itself."""
    done = subprocess.run([*command(mode), *arguments], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr
