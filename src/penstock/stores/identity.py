"""The id of a standalone worker, kept beside its offsets file: who goes on with these offsets has the same id.

Main function: ``kept_id``. Thread: that of the worker's start, after the offsets file was locked.
"""

from __future__ import annotations

import logging
import re
import secrets
from pathlib import Path
from typing import Final

from penstock.stores.file import replace_file

logger = logging.getLogger(__name__)

_ID: Final = re.compile(r"[0-9a-f]{16}")
_ID_BYTES: Final = 8


def kept_id(offsets_file: str) -> str | None:
    """The id of the worker whose offsets these are; made and kept in ``<offsets file>.id`` the first time.

    Args:
        offsets_file: Its path; its lock is held.

    Returns:
        16 hexadecimal digits; None where nothing can be kept, as beside a device.
    """
    file = Path(offsets_file).absolute()
    if file.exists() and not file.is_file():
        return None
    # A link to the file leads to the same worker.
    kept = Path(f"{file.resolve()}.id")
    try:
        if kept.exists() and _ID.fullmatch(found := kept.read_text(encoding="ascii", errors="replace").strip()):
            return found
        new = secrets.token_hex(_ID_BYTES)
        replace_file(kept, f"{new}\n".encode("ascii"))
    except OSError as error:
        logger.warning(
            "The worker's id cannot be kept in %s (%s): after a crash its sinks wait for their old group members",
            kept,
            error,
        )
        return None
    return new
