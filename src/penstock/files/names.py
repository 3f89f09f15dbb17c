"""Names of files: topic, partition and first offset. Main type: ``FileNames``. Pure; any thread.

Source: the documentation of Confluent's Amazon S3 sink, "S3 object names".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

from penstock.api import TopicPartition
from penstock.files.generations import OpenFile


def path_part(name: str) -> str:
    """A name, such as that of a connector, as one part of a path.

    >>> path_part("a/b"), path_part(".."), path_part("orders.v2")
    ('a%2Fb', '%2E%2E', 'orders.v2')
    """
    found = quote(name, safe="")
    return found if found.strip(".") else found.replace(".", "%2E")


@dataclass(frozen=True, slots=True)
class FileNames:
    """Makes names of files and reads them: topic, partition and first offset.

    Attributes:
        delimiter: Stands between topic, partition and offset.
        width: Digits of an offset.
        extension: With its dot.

    Source: the documentation of Confluent's Amazon S3 sink, "S3 object names".
    """

    delimiter: str = "+"
    width: int = 10
    extension: str = ".parquet"

    def of(self, place: TopicPartition, file: OpenFile) -> str:
        """The name of a file.

        >>> FileNames().of(TopicPartition("t", 3), OpenFile("d", 7, 0))
        't+3+0000000007.parquet'
        """
        twin = f"-{file.number}" if file.number else ""
        return f"{self.start(place)}{file.first:0{self.width}d}{twin}{self.extension}"

    def start(self, place: TopicPartition) -> str:
        """The text that the names of all files of a partition begin with."""
        return f"{place.topic}{self.delimiter}{place.partition}{self.delimiter}"

    def from_offset(self, place: TopicPartition, offset: int, end: int) -> str:
        """The key from which to list files with given offsets.

        Offsets with more digits than names usually have do not sort; then it is the beginning of all files of the
        partition.

        Args:
            place: The partition.
            offset: The first offset.
            end: The offset after the last one.
        """
        return self.start(place) + (f"{offset:0{self.width}d}" if len(str(end)) <= self.width else "")

    def stale(self, place: TopicPartition, start: int, end: int, own: Iterable[str], there: Iterable[str]) -> list[str]:
        """Files whose rows are also in other files, because a killed run had closed its files at other offsets.

        Args:
            place: The partition.
            start: The first offset of the written generation.
            end: The offset after it.
            own: The names of its files in this directory.
            there: The names of all files in this directory.
        """
        kept = set(own)
        return [
            one
            for one in there
            if one not in kept and (at := self.offset(place, one)) is not None and start <= at < end
        ]

    def offset(self, place: TopicPartition, name: str) -> int | None:
        """The first offset of a file of the partition; None if the name has another form."""
        found = re.fullmatch(re.escape(self.start(place)) + r"(\d+)(-\d+)?(\.[A-Za-z0-9.]+)", name)
        return int(found[1]) if found else None
