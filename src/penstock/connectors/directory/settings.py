"""Settings of the directory source, and what the connector tells its tasks.

Main types: `DirectorySourceConfig`; `TaskFiles` with `encode_files` and `decode_files`. Values; any thread.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from penstock.config import (
    AbstractConfig,
    ConfigType,
    Importance,
    NonEmptyString,
    Range,
    ValidList,
    setting,
)
from penstock.connectors.directory.planning import Committed
from penstock.errors import ConnectException

#: Made by the connector for each task; not a setting for users.
TASK_FILES_CONFIG = "task.files"


class DirectorySourceConfig(AbstractConfig):
    """The settings of the directory source."""

    directories: tuple[str, ...] = setting(
        validator=ValidList.any_non_duplicate(empty_allowed=False, null_allowed=False),
        importance=Importance.HIGH,
        doc="The directories to watch. Every worker must see them under the same absolute path.",
    )
    topic: str = setting(
        validator=NonEmptyString(),
        importance=Importance.HIGH,
        doc="The topic that the lines of all files are written to.",
    )
    file_pattern: str = setting(
        default="*",
        validator=NonEmptyString(),
        doc="Which files to read: a glob (*, ?, [...]) for the name without its directory. A name that begins with a "
        "dot is matched only by a pattern that does too, so writers may hide unfinished files that way.",
    )
    recursive: bool = setting(
        default=False,
        doc="Whether to watch the directories below too. Links to directories and those whose name begins with a dot "
        "are left out.",
    )
    scan_interval_ms: int = setting(
        type=ConfigType.LONG,
        default=1000,
        validator=Range.at_least(1),
        doc="How often the directories and the offsets of the tasks are looked at.",
    )
    idle_ms: int = setting(
        type=ConfigType.LONG,
        default=5000,
        validator=Range.at_least(0),
        doc="A file is finished when all of it was read and its size and time of change have stayed the same for so "
        "long. A last line without an end counts as complete then. A finished file that grows is read on.",
    )
    stall_timeout_ms: int = setting(
        type=ConfigType.LONG,
        default=300_000,
        validator=Range.at_least(1),
        doc="A task that has bytes to read but has committed no new offset for so long is restarted, whether it hangs "
        "or has failed. Must be longer than idle.ms, and has to be well above the worker's offset.flush.interval.ms, "
        "because tasks commit no more often than that.",
    )

    def faults(self, properties: Mapping[str, object]) -> Iterator[tuple[str, str]]:
        """See ``AbstractConfig``."""
        if self.stall_timeout_ms <= self.idle_ms:
            text = f"must be longer than idle.ms ({self.idle_ms}), for which tasks wait before they finish a file"
            yield "stall.timeout.ms", text

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The directories, absolute and without repetition."""
        return tuple(dict.fromkeys(os.path.abspath(directory) for directory in self.directories))


@dataclass(frozen=True, slots=True)
class TaskFiles:
    """The files that one task reads.

    Attributes:
        paths: the files, in order.
        stale: files that became other files since their offset was committed, with that offset: as long as it is the
            committed one, such a file is read from its start.
    """

    paths: Sequence[str]
    stale: Mapping[str, Committed] = field(default_factory=dict)


def encode_files(files: TaskFiles) -> str:
    """As text for a task configuration.

    A dollar sign is written as an escape, so that a file's name is never taken for a placeholder of a config provider.
    """
    entries: list[object] = []
    for path in files.paths:
        stale = files.stale.get(path)
        entries.append(path if stale is None else {"path": path, "position": stale.position, "size": stale.size})
    return json.dumps(entries, ensure_ascii=False).replace("$", "\\u0024")


def decode_files(text: str | None) -> TaskFiles:
    """The other way.

    Raises:
        ConnectException: the text was not made by `encode_files`.
    """
    paths, stale = [], {}
    try:
        for entry in json.loads(text or ""):
            if isinstance(entry, str):
                paths.append(entry)
                continue
            paths.append(entry["path"])
            stale[entry["path"]] = Committed(entry["position"], entry["size"])
    except (ValueError, TypeError, KeyError) as error:
        raise ConnectException(
            f"Task setting '{TASK_FILES_CONFIG}' is not a list of files: {text!r}. The connector makes it; it is not "
            "to be set by hand"
        ) from error
    return TaskFiles(paths, stale)
