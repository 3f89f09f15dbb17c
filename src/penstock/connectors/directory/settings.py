"""Settings of the directory source, and what the connector tells its tasks.

Main types: `CONFIG`, `Settings`; `TaskFiles` with `encode_files` and `decode_files`. Values; any thread.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.config import ConfigDef, ConfigType, Importance, NonEmptyString, Range, ValidList
from penstock.connectors.directory.planning import Committed
from penstock.errors import ConfigException, ConnectException

DIRECTORIES_CONFIG = "directories"
TOPIC_CONFIG = "topic"
FILE_PATTERN_CONFIG = "file.pattern"
RECURSIVE_CONFIG = "recursive"
SCAN_INTERVAL_CONFIG = "scan.interval.ms"
IDLE_CONFIG = "idle.ms"
STALL_TIMEOUT_CONFIG = "stall.timeout.ms"
#: Made by the connector for each task; not a setting for users.
TASK_FILES_CONFIG = "task.files"

CONFIG = (
    ConfigDef()
    .define(
        DIRECTORIES_CONFIG,
        ConfigType.LIST,
        validator=ValidList.any_non_duplicate(empty_allowed=False, null_allowed=False),
        importance=Importance.HIGH,
        doc="The directories to watch. Every worker must see them under the same absolute path.",
    )
    .define(
        TOPIC_CONFIG,
        ConfigType.STRING,
        validator=NonEmptyString(),
        importance=Importance.HIGH,
        doc="The topic that the lines of all files are written to.",
    )
    .define(
        FILE_PATTERN_CONFIG,
        ConfigType.STRING,
        default="*",
        validator=NonEmptyString(),
        importance=Importance.MEDIUM,
        doc="Which files to read: a glob (*, ?, [...]) for the name without its directory. A name that begins with a "
        "dot is matched only by a pattern that does too, so writers may hide unfinished files that way.",
    )
    .define(
        RECURSIVE_CONFIG,
        ConfigType.BOOLEAN,
        default=False,
        importance=Importance.MEDIUM,
        doc="Whether to watch the directories below too. Links to directories and those whose name begins with a dot "
        "are left out.",
    )
    .define(
        SCAN_INTERVAL_CONFIG,
        ConfigType.LONG,
        default=1000,
        validator=Range.at_least(1),
        importance=Importance.MEDIUM,
        doc="How often the directories and the offsets of the tasks are looked at.",
    )
    .define(
        IDLE_CONFIG,
        ConfigType.LONG,
        default=5000,
        validator=Range.at_least(0),
        importance=Importance.MEDIUM,
        doc="A file is finished when all of it was read and its size and time of change have stayed the same for so "
        "long. A last line without an end counts as complete then. A finished file that grows is read on.",
    )
    .define(
        STALL_TIMEOUT_CONFIG,
        ConfigType.LONG,
        default=300_000,
        validator=Range.at_least(1),
        importance=Importance.MEDIUM,
        doc="A task that has bytes to read but has committed no new offset for so long is restarted, whether it hangs "
        "or has failed. Must be longer than idle.ms, and has to be well above the worker's offset.flush.interval.ms, "
        "because tasks commit no more often than that.",
    )
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The parsed settings; times in seconds, directories absolute and without repetition."""

    directories: tuple[str, ...]
    topic: str
    pattern: str
    recursive: bool
    scan_interval_s: float
    idle_s: float
    stall_timeout_s: float

    @classmethod
    def parse(cls, props: Mapping[str, str]) -> Settings:
        """Parses and checks.

        Raises:
            ConfigException: a setting is missing or wrong, or two do not fit together.
        """
        values = CONFIG.parse(props)
        fault = stall_fault(values[IDLE_CONFIG], values[STALL_TIMEOUT_CONFIG])
        if fault is not None:
            raise ConfigException(STALL_TIMEOUT_CONFIG, values[STALL_TIMEOUT_CONFIG], fault)
        directories = values[DIRECTORIES_CONFIG]
        assert isinstance(directories, list | tuple)
        return cls(
            directories=tuple(dict.fromkeys(os.path.abspath(str(directory)) for directory in directories)),
            topic=str(values[TOPIC_CONFIG]),
            pattern=str(values[FILE_PATTERN_CONFIG]),
            recursive=bool(values[RECURSIVE_CONFIG]),
            scan_interval_s=_seconds(values[SCAN_INTERVAL_CONFIG]),
            idle_s=_seconds(values[IDLE_CONFIG]),
            stall_timeout_s=_seconds(values[STALL_TIMEOUT_CONFIG]),
        )


def stall_fault(idle_ms: object, stall_ms: object) -> str | None:
    """What is wrong with the two times together, or None."""
    if isinstance(idle_ms, int) and isinstance(stall_ms, int) and stall_ms <= idle_ms:
        return f"must be longer than {IDLE_CONFIG} ({idle_ms}), for which tasks wait before they finish a file"
    return None


def _seconds(milliseconds: object) -> float:
    assert isinstance(milliseconds, int)
    return milliseconds / 1000


@dataclass(frozen=True, slots=True)
class TaskFiles:
    """What one task reads.

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
