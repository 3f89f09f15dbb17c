"""Deletes single committed offsets of a consumer group (KIP-496), which the Python client does not support.

Main function: ``delete_offsets``. librdkafka itself supports it, with public, stable C functions. This module calls
them in the library that the Python client has loaded, so that every setting (TLS, SASL, ...) has the same meaning as
for the other clients.

Thread: any; the call blocks, and creates and closes its own client.

Source: KIP-496; librdkafka's ``rdkafka.h``, "Admin API - DeleteConsumerGroupOffsets".
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from functools import cache
from typing import Any, Final

import confluent_kafka as ck
import confluent_kafka.cimpl as client_library

from penstock.api import TopicPartition
from penstock.errors import KafkaException

_PRODUCER: Final = 0
_ANY_OPERATION: Final = 0
_TEXT_BYTES: Final = 512
#: The extra time for the client to report that its own deadline has passed.
_SURPLUS_S: Final = 5.0


class _Partition(ctypes.Structure):
    """``rd_kafka_topic_partition_t``."""

    _fields_ = (
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_size", c_size_t),
        ("opaque", c_void_p),
        ("error", c_int),
        ("private", c_void_p),
    )


class _PartitionList(ctypes.Structure):
    """``rd_kafka_topic_partition_list_t``."""

    _fields_ = (("count", c_int), ("size", c_int), ("elements", POINTER(_Partition)))


#: The functions used: result, arguments.
_SIGNATURES: Final[Mapping[str, tuple[Any, tuple[Any, ...]]]] = {
    "conf_new": (c_void_p, ()),
    "conf_destroy": (None, (c_void_p,)),
    "conf_set": (c_int, (c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)),
    "conf_set_log_cb": (None, (c_void_p, c_void_p)),
    "new": (c_void_p, (c_int, c_void_p, c_char_p, c_size_t)),
    "destroy": (None, (c_void_p,)),
    "queue_new": (c_void_p, (c_void_p,)),
    "queue_destroy": (None, (c_void_p,)),
    "queue_poll": (c_void_p, (c_void_p, c_int)),
    "topic_partition_list_new": (POINTER(_PartitionList), (c_int,)),
    "topic_partition_list_add": (c_void_p, (POINTER(_PartitionList), c_char_p, c_int32)),
    "topic_partition_list_destroy": (None, (POINTER(_PartitionList),)),
    "DeleteConsumerGroupOffsets_new": (c_void_p, (c_char_p, POINTER(_PartitionList))),
    "DeleteConsumerGroupOffsets_destroy": (None, (c_void_p,)),
    "AdminOptions_new": (c_void_p, (c_void_p, c_int)),
    "AdminOptions_destroy": (None, (c_void_p,)),
    "AdminOptions_set_request_timeout": (c_int, (c_void_p, c_int, c_char_p, c_size_t)),
    "DeleteConsumerGroupOffsets": (None, (c_void_p, POINTER(c_void_p), c_size_t, c_void_p, c_void_p)),
    "event_destroy": (None, (c_void_p,)),
    "event_error": (c_int, (c_void_p,)),
    "event_error_string": (c_char_p, (c_void_p,)),
    "event_DeleteConsumerGroupOffsets_result": (c_void_p, (c_void_p,)),
    "DeleteConsumerGroupOffsets_result_groups": (POINTER(c_void_p), (c_void_p, POINTER(c_size_t))),
    "group_result_error": (c_void_p, (c_void_p,)),
    "group_result_partitions": (POINTER(_PartitionList), (c_void_p,)),
    "error_code": (c_int, (c_void_p,)),
    "error_string": (c_char_p, (c_void_p,)),
}


class _Functions:
    """librdkafka's functions, without their prefix."""

    def __init__(self) -> None:
        # The handle of the Python client's own library also finds what that library was linked with.
        library = ctypes.CDLL(client_library.__file__)
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, f"rd_kafka_{name}")
            function.restype = result
            function.argtypes = arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


@cache
def _functions() -> _Functions:
    try:
        return _Functions()
    except (OSError, AttributeError) as error:
        raise KafkaException(
            f"This build of confluent-kafka hides the functions of librdkafka, without which single offsets cannot be "
            f"deleted ({error}): install its wheel from PyPI, or delete all offsets of the connector"
        ) from error


def delete_offsets(
    settings: Mapping[str, object], group: str, partitions: Iterable[TopicPartition], timeout_s: float
) -> dict[TopicPartition, ck.KafkaError | None]:
    """Delete the committed offsets of these partitions; all other offsets stay as they are.

    Args:
        settings: The settings by librdkafka's names, without callbacks.
        group: The group's id.
        partitions: The partitions; those without a committed offset are ignored.
        timeout_s: The timeout.

    Returns:
        The broker's error for each partition; None if the offset is gone.

    Raises:
        confluent_kafka.KafkaException: the group as a whole was refused, or nobody answered in time.
        KafkaException: a setting is wrong, or the client library was built without these functions.
    """
    rd = _functions()
    with ExitStack() as cleanup:
        handle = _client(rd, settings)
        cleanup.callback(rd.destroy, handle)
        queue = rd.queue_new(handle)
        cleanup.callback(rd.queue_destroy, queue)
        listed = rd.topic_partition_list_new(1)
        cleanup.callback(rd.topic_partition_list_destroy, listed)
        for at in partitions:
            rd.topic_partition_list_add(listed, at.topic.encode(), at.partition)
        request = c_void_p(rd.DeleteConsumerGroupOffsets_new(group.encode(), listed))
        cleanup.callback(rd.DeleteConsumerGroupOffsets_destroy, request)
        options = rd.AdminOptions_new(handle, _ANY_OPERATION)
        cleanup.callback(rd.AdminOptions_destroy, options)
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        if rd.AdminOptions_set_request_timeout(options, int(timeout_s * 1000), text, _TEXT_BYTES):
            raise KafkaException(_decoded(text.value))
        rd.DeleteConsumerGroupOffsets(handle, byref(request), 1, options, queue)
        event = rd.queue_poll(queue, int((timeout_s + _SURPLUS_S) * 1000))
        if not event:
            raise ck.KafkaException(ck.KafkaError(ck.KafkaError._TIMED_OUT))
        cleanup.callback(rd.event_destroy, event)
        return _answer(rd, event)


def _client(rd: _Functions, settings: Mapping[str, object]) -> int:
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    conf = rd.conf_new()
    # Its lines would go to standard error; what matters is in the answer.
    rd.conf_set_log_cb(conf, None)
    for name, value in settings.items():
        spelled = str(value).lower() if isinstance(value, bool) else str(value)
        if rd.conf_set(conf, name.encode(), spelled.encode(), text, _TEXT_BYTES):
            rd.conf_destroy(conf)
            raise KafkaException(f"The client cannot be made: {_decoded(text.value)}")
    handle = rd.new(_PRODUCER, conf, text, _TEXT_BYTES)
    if not handle:
        rd.conf_destroy(conf)
        raise KafkaException(f"The client cannot be made: {_decoded(text.value)}")
    return int(handle)


def _answer(rd: _Functions, event: int) -> dict[TopicPartition, ck.KafkaError | None]:
    if code := rd.event_error(event):
        raise ck.KafkaException(ck.KafkaError(code, _decoded(rd.event_error_string(event))))
    count = c_size_t()
    groups = rd.DeleteConsumerGroupOffsets_result_groups(
        rd.event_DeleteConsumerGroupOffsets_result(event), byref(count)
    )
    found: dict[TopicPartition, ck.KafkaError | None] = {}
    for group in groups[: count.value]:
        if error := rd.group_result_error(group):
            raise ck.KafkaException(ck.KafkaError(rd.error_code(error), _decoded(rd.error_string(error))))
        answered = rd.group_result_partitions(group)
        if answered:
            for at in answered.contents.elements[: answered.contents.count]:
                found[TopicPartition(_decoded(at.topic), at.partition)] = ck.KafkaError(at.error) if at.error else None
    return found


def _decoded(text: bytes | None) -> str:
    return (text or b"").decode(errors="replace")
