"""An archive of Penstock and what it needs, for executors of Spark that have neither.

Main function: ``pack``. The archive has files of Python packages only, for the same Python and platform; Spark unpacks
it next to each executor (`spark.archives`). PySpark is not in it: executors have Spark's.

Thread: the caller's.
"""

from __future__ import annotations

import importlib.metadata as metadata
import re
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import penstock
from penstock.errors import ConnectException

#: Packages that executors have from Spark, or that only REST and commands use.
_LEFT_OUT: Final = frozenset({"penstock", "pyspark", "py4j", "fastapi", "uvicorn", "starlette", "click", "rich"})
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def needed(distribution: str = "penstock") -> list[str]:
    """The distributions that one needs without extras, at any depth, sorted; without those in `_LEFT_OUT`."""
    found: set[str] = set()
    waiting = [distribution]
    while waiting:
        for requirement in _requirements(waiting.pop()):
            if requirement not in found | _LEFT_OUT:
                found.add(requirement)
                waiting.append(requirement)
    return sorted(found)


def _requirements(distribution: str) -> Iterator[str]:
    try:
        required = metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:
        return
    for text in required:
        requirement, _, condition = text.partition(";")
        name = _NAME.match(requirement.strip())
        # Extras are installed on purpose; other conditions were decided when this was installed.
        if name is not None and "extra" not in condition and _installed(_normal(name[0])):
            yield _normal(name[0])


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def pack(target: Path, more: Sequence[Path] = ()) -> list[str]:
    """Writes an archive; one that is there is replaced when the new one is complete.

    Args:
        target: A file whose name ends with .tar.gz or .tgz.
        more: Files and folders of modules, for the archive's top.

    Returns:
        The names of the distributions in it.

    Raises:
        ConnectException: The name is another, or something cannot be read or written.
    """
    if not target.name.endswith((".tar.gz", ".tgz")):
        raise ConnectException(f"{target} is no name for an archive: Spark unpacks files that end with .tar.gz or .tgz")
    draft = target.with_name(f".{target.name}.draft")
    names = needed()
    try:
        with tarfile.open(draft, "w:gz", compresslevel=3) as archive:
            own = Path(penstock.__file__).parent
            archive.add(own, "penstock", filter=_without_caches)
            for name in names:
                for path, place in _files(name):
                    archive.add(path, place, recursive=False)
            for path in more:
                for one in sorted(path.iterdir()) if path.is_dir() else [path]:
                    archive.add(one, one.name, filter=_without_caches)
        draft.replace(target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ConnectException(f"The archive {target} cannot be made: {error}") from error
    return ["penstock", *names, *(path.name for path in more)]


def _files(name: str) -> Iterable[tuple[Path, str]]:
    for file in metadata.distribution(name).files or ():
        place = file.as_posix()
        path = Path(str(file.locate()))
        # Scripts lie outside of the packages.
        if not place.startswith("..") and "__pycache__" not in place and path.is_file():
            yield path, place


def _without_caches(found: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in found.name or found.name.endswith(".pyc") else found
