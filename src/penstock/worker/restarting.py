"""Decides what follows when a task has ended by an error: it is FAILED, or made anew at its committed offsets.

Main types: ``TransactionLostException``; ``SparkSessionLostException`` is another error after which a task is not to
blame, ``FencedInstanceIdException`` a third in a group of workers. Main function: ``state_after``. Pure.
"""

from __future__ import annotations

from penstock.errors import ConnectException, FencedInstanceIdException, SparkSessionLostException
from penstock.model import State


class TransactionLostException(ConnectException):
    """The open transaction of a source task can never be committed; its records have to be read again.

    Args:
        message: What has happened, and what to do if it happens again and again.
        outside: Whether what lies outside of the task is the cause: brokers that do not answer. Then the task is made
            anew as often as it takes.
    """

    def __init__(self, message: str, *, outside: bool = False) -> None:
        super().__init__(message)
        self.outside = outside


def state_after(error: BaseException, *, shares_id: bool = False) -> State:
    """What a task that ended by an error is: FAILED, or about to start again.

    Args:
        error: The error.
        shares_id: Whether the workers of a group have one static member id for the task. A worker that was frozen may
            join with it when it wakes, and fence the task where it runs by now; its group tells it a moment later.
    """
    again = isinstance(error, SparkSessionLostException | TransactionLostException)
    fenced = shares_id and isinstance(error, FencedInstanceIdException)
    return State.RESTARTING if again or fenced else State.FAILED
