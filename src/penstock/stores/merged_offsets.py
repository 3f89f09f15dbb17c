"""The offsets of a source connector that has an offsets topic of its own, over those that all connectors share.

Main type: `MergedOffsetStore`. What is in the own topic wins; the shared one has copies, so that the connector goes on
where it was when its own topic is taken away.

Thread: any.
Source: internal-topics.md section 2; org.apache.kafka.connect.storage.ConnectorOffsetBackingStore.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from penstock.stores.entries import key_identity
from penstock.stores.offset_topic import OffsetTopicStore


class MergedOffsetStore:
    """An `OffsetStore` over two.

    Args:
        own: The connector's; started and stopped by this one.
        shared: The worker's; runs already, and goes on.
        clock: Monotonic seconds.
    """

    def __init__(
        self, own: OffsetTopicStore, shared: OffsetTopicStore, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._own = own
        self._shared = shared
        self._clock = clock

    def start(self) -> None:
        """See `OffsetStore`."""
        self._own.start()

    def stop(self) -> None:
        """See `OffsetStore`."""
        self._own.stop()

    def get(self, keys: Iterable[bytes], timeout_s: float | None = None) -> dict[bytes, bytes | None]:
        """See `OffsetStore`."""
        left = self._limit(timeout_s)
        wanted = list(keys)
        found = self._own.get(wanted, left())
        missing = [key for key in wanted if found[key] is None]
        return {**found, **self._shared.get(missing, left())} if missing else found

    def set(self, entries: Mapping[bytes, bytes | None], timeout_s: float | None = None) -> None:
        """See `OffsetStore`.

        An offset that is removed is removed from the shared topic first: left there, it would count again as soon as
        the own one has none. Offsets are written to the own topic first, and only copied to the shared one.
        """
        left = self._limit(timeout_s)
        self._remove_shared(entries, left())
        self._own.set(entries, left())
        self.written(entries)

    def entries(self) -> dict[bytes, bytes]:
        """See `OffsetStore`."""
        own = self._own.entries()
        known = {key_identity(key) for key in own}
        shared = self._shared.entries()
        return {**{key: value for key, value in shared.items() if key_identity(key) not in known}, **own}

    @property
    def topic(self) -> str:
        """The name of the connector's topic."""
        return self._own.topic

    def records(
        self, entries: Mapping[bytes, bytes | None], timeout_s: float | None = None
    ) -> list[tuple[bytes, bytes | None]]:
        """The records for the connector's topic that say this, for a transaction: in the order of writes of `set`.

        Raises:
            OffsetStoreException: what is removed could not be removed from the shared topic.
        """
        self._remove_shared(entries, timeout_s)
        return self._own.records(entries)

    def written(self, entries: Mapping[bytes, bytes | None]) -> None:
        """They were committed: they are copied to the shared topic. Does not wait."""
        self._shared.copy({key: value for key, value in entries.items() if value is not None})

    def _remove_shared(self, entries: Mapping[bytes, bytes | None], timeout_s: float | None) -> None:
        removed = {key: None for key, value in entries.items() if value is None}
        if removed:
            self._shared.set(removed, timeout_s)

    def _limit(self, timeout_s: float | None) -> Callable[[], float | None]:
        """How much is left of one time limit for both."""
        if timeout_s is None:
            return lambda: None
        deadline = self._clock() + timeout_s
        return lambda: max(0.0, deadline - self._clock())
