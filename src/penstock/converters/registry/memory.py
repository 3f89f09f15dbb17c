"""What is remembered of schemas: the answers used last, and for a while that there was none.

Main type: ``Memory``.

Thread: a task's pipeline thread.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from penstock.errors import ConfigException, DataException

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

#: Errors that the same question brings again; an outage is none of them.
LASTING: Final = (DataException, ConfigException)


class Memory(Generic[K, V]):
    """Values by key, made on first use; the keys used last are kept.

    Args:
        size: How many values, and how many errors, are kept.
        refusal_s: For how many seconds an error is raised again without asking.
        clock: Seconds that only grow.
    """

    def __init__(self, size: int, refusal_s: float, clock: Callable[[], float]) -> None:
        self._size = size
        self._refusal_s = refusal_s
        self._clock = clock
        self._kept: OrderedDict[K, tuple[V, float | None]] = OrderedDict()
        self._refused: OrderedDict[K, tuple[float, DataException | ConfigException]] = OrderedDict()

    def get(self, key: K, make: Callable[[], V], ttl_s: float | None = None) -> V:
        """The value of a key.

        Args:
            key: The key.
            make: Makes it when it is not kept, or not any more.
            ttl_s: For how many seconds a value that is made now is kept; None = for ever.

        Raises:
            DataException: Raised by ``make``, now or not long ago; so for ConfigException.
            RetriableException: Raised by ``make`` now.
        """
        found = self._kept.get(key)
        if found is not None and (found[1] is None or self._clock() < found[1]):
            self._kept.move_to_end(key)
            return found[0]
        refused = self._refused.get(key)
        if refused is not None:
            if self._clock() < refused[0]:
                # Another object: one that is raised again and again collects traces.
                raise type(refused[1])(str(refused[1]))
            del self._refused[key]
        try:
            value = make()
        except LASTING as error:
            self._refused[key] = (self._clock() + self._refusal_s, error)
            _shorten(self._refused, self._size)
            raise
        self._kept[key] = (value, None if ttl_s is None else self._clock() + ttl_s)
        self._kept.move_to_end(key)
        _shorten(self._kept, self._size)
        return value


def _shorten(kept: OrderedDict[K, V], size: int) -> None:
    while len(kept) > size:
        kept.popitem(last=False)
