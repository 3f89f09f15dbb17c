"""What an error of a consumer's client means: the task fails, or the client keeps trying, or nothing is wrong.

Main functions: ``ends_reading``, ``is_usual``; ``exception_of`` gives what is raised. Pure; any thread.
"""

from __future__ import annotations

from typing import Final

import confluent_kafka as ck

from penstock.errors import FencedInstanceIdException, KafkaException, KafkaRetriableException

_Error = ck.KafkaError
#: The task fails on these; anything else that is not fatal for the client itself is waited out.
_ENDING: Final = frozenset(
    {
        _Error.TOPIC_AUTHORIZATION_FAILED,
        _Error.GROUP_AUTHORIZATION_FAILED,
        _Error.CLUSTER_AUTHORIZATION_FAILED,
        _Error.TOPIC_EXCEPTION,
        _Error.INVALID_GROUP_ID,
        _Error.INCONSISTENT_GROUP_PROTOCOL,
        _Error.UNSUPPORTED_VERSION,
        _Error.FENCED_INSTANCE_ID,
        _Error._AUTHENTICATION,
        _Error._AUTO_OFFSET_RESET,
        _Error._NO_OFFSET,
        _Error._FATAL,
    }
)
_QUIET: Final = frozenset({_Error._PARTITION_EOF})
_FENCED: Final = ck.KafkaError(_Error.FENCED_INSTANCE_ID).str()


def ends_reading(error: ck.KafkaError) -> bool:
    """Whether the task fails; anything else is waited out."""
    return bool(error.code() in _ENDING or error.fatal())


def is_usual(error: ck.KafkaError) -> bool:
    """Whether it is normal business of a group member: no need to tell."""
    return error.code() in _QUIET


def exception_of(name: str, error: ck.KafkaError) -> KafkaException:
    """The error as it is raised.

    Args:
        name: Says whose consumer it is.
        error: Of the client.
    """
    text = f"{name}: {error.str()} ({error.name()})"
    # An error that ends the client has the code _FATAL; what it was is only in its text.
    if _FENCED in error.str():
        text += (
            ". Another consumer is in the group with the same group.instance.id: a second worker with a copy of this "
            "one's directory (remove the copied .id file beside its offsets file), or with the same "
            "consumer.override.group.instance.id. penstock.kafka.static.members=false does without such ids"
        )
        return FencedInstanceIdException(text)
    return KafkaRetriableException(text) if error.retriable() else KafkaException(text)
