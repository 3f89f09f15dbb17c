"""The treatment of files that were read. Main type: ``Cleanup``. The task's thread.

Source: the settings ``cleanup.policy``, ``finished.path`` and ``error.path`` of the SpoolDir connectors.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from penstock.connectors.files.source.ledger import FileOutcome
from penstock.connectors.files.source.settings import OnDone
from penstock.errors import ConnectException
from penstock.files.stores import Found, Store

log = logging.getLogger(__name__)

_DAY_NS: Final = 86_400_000_000_000


@dataclass
class Cleanup:
    """Moves and deletes files whose records are in Kafka, with their offsets.

    A file that cannot be moved stays, is not read again, and is retried with the next listing.

    Attributes:
        store: The store of the files.
        policy: The policy for files that were read.
        finished: The target of files that were read.
        failed: The target of files that could not be read; empty: they stay.
    """

    store: Store
    policy: OnDone
    finished: str = ""
    failed: str = ""
    _complaint: str = field(default="", repr=False)

    def __call__(self, found: Found, outcome: FileOutcome) -> bool:
        """Moves or deletes a file.

        Returns:
            True if the file is gone.
        """
        try:
            if outcome is FileOutcome.FAILED:
                if not self.failed:
                    return False
                self.store.move(found.key, f"{self.failed}/{found.key}")
            elif self.policy is OnDone.DELETE:
                self.store.delete(found.key)
            elif self.policy is OnDone.NONE:
                return False
            else:
                self.store.move(found.key, f"{self.finished}/{self._day(found)}{found.key}")
        except ConnectException as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("A file that was read stays where it is, and is tried again: %s", error)
            return False
        return True

    def _day(self, found: Found) -> str:
        if self.policy is not OnDone.MOVE_BY_DATE:
            return ""
        # Any time of a file has a day, also one after the last of Python's dates.
        return f"{np.datetime64(found.time_ns // _DAY_NS, 'D')}/"
