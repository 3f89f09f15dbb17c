"""Which topics each connector has used since its topics were last reset.

Main type: ``ActiveTopics``. Any thread. ``penstock.worker.topic_tracking`` fills it.

Source: KIP-558; org.apache.kafka.connect.runtime.TopicStatus.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable


class ActiveTopics:
    """The topics in use, by connector.

    >>> topics = ActiveTopics()
    >>> topics.note("a", ["orders", "customers"])
    >>> topics.of("a")
    ['customers', 'orders']
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topics: dict[str, frozenset[str]] = {}

    def note(self, connector: str, topics: Iterable[str]) -> None:
        """A record of each of these topics has arrived."""
        used = frozenset(topics)
        # Nearly every call brings nothing new; that is seen without the lock, on one immutable set.
        if used <= self._topics.get(connector, frozenset()):
            return
        with self._lock:
            self._topics[connector] = self._topics.get(connector, frozenset()) | used

    def of(self, connector: str) -> list[str]:
        """The topics of a connector, sorted."""
        return sorted(self._topics.get(connector, ()))

    def reset(self, connector: str) -> None:
        """Forgets them; the next record of a topic adds it again."""
        with self._lock:
            self._topics.pop(connector, None)
