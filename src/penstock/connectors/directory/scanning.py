"""Looks at directories: which files are there, how large, how old.

Main function: `scan_directories`. It reads directories and nothing else; called on the monitor's thread.
"""

from __future__ import annotations

import fnmatch
import os
import stat
from collections.abc import Callable

from penstock.connectors.directory.planning import FileState, Scan
from penstock.connectors.directory.settings import DirectorySourceConfig


def scan_directories(config: DirectorySourceConfig, complain: Callable[[str, str], None]) -> Scan:
    """Lists the files that match.

    Args:
        config: where and what to look for.
        complain: told what cannot be read: the path, and a message for the log.
    """
    files: dict[str, FileState] = {}
    unreadable: set[str] = set()
    listed: set[str] = set()
    failed: set[str] = set()
    waiting = list(reversed(config.paths))
    while waiting:
        directory = waiting.pop()
        if directory in listed or directory in failed:
            continue
        try:
            entries = _entries(directory)
        except OSError as error:
            if directory not in config.paths and isinstance(error, FileNotFoundError):
                continue  # removed between the listing of its parent and now
            failed.add(directory)
            complain(
                directory,
                f"Cannot list directory {directory}: {error.strerror}. Its files are left as they are known until it "
                "can be; check that it exists and that the worker's user may read it",
            )
            continue
        listed.add(directory)
        for entry in entries:
            if config.recursive and _is_subdirectory(entry):
                waiting.append(entry.path)
            elif _matches(entry.name, config.file_pattern):
                state = _state(entry.path, complain)
                if isinstance(state, FileState):
                    files[entry.path] = state
                elif state:
                    unreadable.add(entry.path)
    return Scan([files[path] for path in sorted(files)], frozenset(unreadable), frozenset(failed))


def _entries(directory: str) -> list[os.DirEntry[str]]:
    with os.scandir(directory) as found:
        return sorted(found, key=lambda entry: entry.name)


def _is_subdirectory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
    except OSError:
        return False


def _matches(name: str, pattern: str) -> bool:
    """As a shell's glob: a leading dot has to be asked for."""
    if name.startswith(".") and not pattern.startswith("."):
        return False
    return fnmatch.fnmatchcase(name, pattern)


def _state(path: str, complain: Callable[[str, str], None]) -> FileState | bool:
    """The file; False when it is none or has gone, True when it is one but cannot be read."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        complain(path, f"Cannot look at file {path}: {error.strerror}. It is left out until that works")
        return True
    if not stat.S_ISREG(found.st_mode):
        return False
    try:
        path.encode()
    except UnicodeEncodeError:
        complain(path, f"The name of file {path!r} is not UTF-8, so no offset can be kept for it; it is left out")
        return False
    if not os.access(path, os.R_OK):
        complain(path, f"File {path} may not be read by the worker's user; it is left out until it may be")
        return True
    return FileState(path, found.st_size, found.st_mtime_ns, (found.st_dev, found.st_ino))
