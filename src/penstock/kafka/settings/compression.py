"""The compression of record batches: the value that settings give and that makes batches.

Main type: `Compression`.

Thread: none; values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)


@dataclass(frozen=True)
class Compression:
    """The compression of the records of a batch.

    Attributes:
        code: Its number in a batch's attributes: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
        level: Kafka's default if None. Of no meaning for none and snappy.

    Source: KIP-390, "Support Compression Level".
    """

    code: int
    level: int | None = None

    @classmethod
    def named(cls, name: str, level: int | None = None) -> Compression:
        """By the name that `compression.type` has for it.

        Raises:
            ValueError: There is no such compression.
        """
        if name not in COMPRESSIONS:
            raise ValueError(f"compression.type is {name!r}, it must be one of {', '.join(COMPRESSIONS)}")
        return cls(COMPRESSIONS.index(name), level)
