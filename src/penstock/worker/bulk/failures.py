"""The failure of an attempt on an executor, encoded in the text of the exception that Spark passes on.

Main types: ``Failure``, and ``AttemptFailedException``, which carries one. ``is_final`` decides whether another attempt
ends the same way.

Thread: pure.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from penstock.errors import ConnectException, KafkaException, RetriableException, TransactionalIdAuthorizationException
from penstock.worker.bulk.runs import NotRepeatableException

#: The marks around a failure in the text of the exception that Spark passes on.
_BEGIN: Final = "penstock-bulk:"
_END: Final = ":penstock-bulk"


@dataclass(frozen=True)
class Failure:
    """The end of an attempt at a partition.

    Attributes:
        partition: The Spark partition.
        final: True if another attempt would end the same way.
        message: The description of the failure.
    """

    partition: int
    final: bool
    message: str

    def to_text(self) -> str:
        """The text of the exception that carries it."""
        return f"{_BEGIN}{json.dumps([self.partition, self.final, self.message])}{_END}"

    @staticmethod
    def of(error: BaseException) -> Failure | None:
        """The failure that an exception of Spark's carries; None if it carries none."""
        text = str(error)
        start = text.find(_BEGIN)
        end = text.find(_END, start)
        if start < 0 or end < 0:
            return None
        try:
            partition, final, message = json.loads(text[start + len(_BEGIN) : end])
        except ValueError:
            return None
        return Failure(partition, final, message)


class AttemptFailedException(Exception):
    """An attempt at a Spark partition has failed; the text encodes a ``Failure``."""


def is_final(error: Exception) -> bool:
    """True if another attempt would end the same way."""
    if isinstance(error, NotRepeatableException | TransactionalIdAuthorizationException):
        return True
    if isinstance(error, KafkaException | RetriableException):
        return False
    return isinstance(error, ConnectException)


def text_of(error: BaseException) -> str:
    """Returns an error and its causes in one line."""
    found: list[str] = []
    one: BaseException | None = error
    while one is not None and len(found) < 4:
        text = f"{type(one).__name__}: {one}" if not found or str(one) not in found[-1] else ""
        if text:
            found.append(text)
        one = one.__cause__
    return " | caused by ".join(found)
