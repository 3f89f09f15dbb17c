"""How often previews may begin: together they use a small share of the machine's time.

On a machine without an idle moment whatever a preview uses is taken from connectors that run. A low priority does not
help, because half of the work is done by threads of the worker; so it is spread over time.

Main type: ``Pace``. Thread: any; the time comes from outside, and nothing here waits.
"""

from __future__ import annotations

import threading
from typing import Final

#: The share of all cores that previews may use.
SHARE: Final = 0.015
#: What a preview uses as far as is known before it has run, in CPU seconds; also what it counts at least, because not
#: all of it is measured (the request's way in and out).
USUAL_S: Final = 0.01
#: So many may begin at once after a rest: nobody who tries one and then another has to wait.
AHEAD: Final = 2


class Pace:
    """Says when previews may begin, by what those before them have used.

    Args:
        cores: How many cores there are.
    """

    def __init__(self, cores: int) -> None:
        self._rate = SHARE * cores
        self._lock = threading.Lock()
        #: Until then the share is used up.
        self._used_until = float("-inf")

    def begins(self, now: float) -> float:
        """Books a preview; how many seconds it has to wait before it begins.

        Args:
            now: Monotonic seconds.

        >>> pace = Pace(cores=2)
        >>> [round(pace.begins(now), 3) for now in (100.0, 100.0, 100.0, 101.0)]
        [0.0, 0.0, 0.333, 0.0]
        """
        with self._lock:
            each = USUAL_S / self._rate
            free = max(self._used_until, now)
            self._used_until = free + each
            return max(0.0, free - (AHEAD - 1) * each - now)

    def ended(self, used_s: float) -> None:
        """A preview that was booked has ended.

        Args:
            used_s: What it has used, in CPU seconds.
        """
        with self._lock:
            self._used_until += max(0.0, used_s - USUAL_S) / self._rate
