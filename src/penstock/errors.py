"""Every error the public API knows, in one tree, under Kafka's own names.

The reaction of the worker depends on the class, never on the text::

    KafkaException                     errors of Kafka's common library
    |-- ConfigException                a setting is wrong: refused at validation, or the start fails
    |-- SerializationException         a (de)serializer failed: an error of that record
    |-- AuthenticationException        a broker and the client do not accept each other: fatal until settings change
    |   |-- SaslAuthenticationException    the login was refused
    |   `-- SslAuthenticationException     the TLS handshake failed
    |-- ProducerFencedException        another producer has the transactional id: nothing more can be sent
    |-- TransactionalIdAuthorizationException  the user has no right to the transactional id
    |-- TransactionAbortableException  the transaction cannot be committed: abort it, then begin another
    |-- CommitOutcomeUnknownException  a commit was asked for and not answered: ask again
    |-- KafkaRetriableException        from ``poll`` or ``put``: try the same call again
    ConnectException                   fatal for the task or connector that raises it
    |-- RetriableException             from a task's call: try the same call again, now or when it says
    |   `-- SparkUnavailableException  the Spark session is gone or cannot start: the batch is run again
    |       |-- SparkSessionLostException  what a task made on a session is gone with it: the task is started again
    |       `-- SparkStoppedException  the worker, or the task, is stopping: what was read is read again by the next one
    |-- SparkOverdueException          a batch took longer on Spark than its transform may
    |-- DataException                  this record is bad: skipped when errors are tolerated, else fatal
    |   |-- PatternTimeoutException    a regular expression took too long for this record
    |   |-- SchemaBuilderException
    |   `-- SchemaProjectorException
    |-- NotFoundException              REST: 404
    |-- AlreadyExistsException         REST: 409
    |-- BadRequestException            REST: 400
    |-- ConflictException              REST: 409
    |-- ForbiddenException             REST: 403
    |-- NotReadyException              REST: 503
    |-- IllegalWorkerStateException    a context was used where or when it must not be
    |-- ToleranceExceededException     more errors than ``errors.tolerance`` allows
    |-- OwnershipLostException         another task has the partitions of this one, which must write nothing more
    `-- OffsetStoreException           source offsets could not be read or written

Each class carries ``java_name``: the name of Kafka Connect's class in traces and in the headers of dead letter queue
records.

Owning thread: none; errors are values.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import ClassVar, Final, overload

from penstock.traces import python_trace

__all__ = [
    "AlreadyExistsException",
    "AuthenticationException",
    "BadRequestException",
    "CommitOutcomeUnknownException",
    "ConfigException",
    "ConflictException",
    "ConnectException",
    "DataException",
    "FencedInstanceIdException",
    "ForbiddenException",
    "IllegalWorkerStateException",
    "KafkaException",
    "KafkaRetriableException",
    "NotFoundException",
    "NotReadyException",
    "OffsetOutOfRangeException",
    "OffsetStoreException",
    "OwnershipLostException",
    "PatternTimeoutException",
    "ProducerFencedException",
    "RetriableException",
    "SaslAuthenticationException",
    "SchemaBuilderException",
    "SchemaProjectorException",
    "SerializationException",
    "ServiceDeniedException",
    "ServiceUnavailableException",
    "SparkOverdueException",
    "SparkSessionLostException",
    "SparkStoppedException",
    "SparkUnavailableException",
    "SslAuthenticationException",
    "ToleranceExceededException",
    "TransactionAbortableException",
    "TransactionalIdAuthorizationException",
    "as_exception",
    "http_error",
    "java_class_name",
    "retry_after_s",
    "stack_trace",
]


class KafkaException(Exception):
    """Root of the errors of Kafka's common library."""

    java_name: ClassVar[str] = "org.apache.kafka.common.KafkaException"


class ConfigException(KafkaException):
    """A setting has a wrong value.

    Args:
        name: Name of the setting; as the only argument, the whole message.
        value: The value that was refused.
        message: The reason, and the allowed values.

    >>> str(ConfigException("tasks.max", 0, "Value must be at least 1"))
    'Invalid value 0 for configuration tasks.max: Value must be at least 1'
    >>> str(ConfigException("Must configure one of topics or topics.regex"))
    'Must configure one of topics or topics.regex'
    """

    java_name: ClassVar[str] = "org.apache.kafka.common.config.ConfigException"

    @overload
    def __init__(self, name: str, /) -> None: ...

    @overload
    def __init__(self, name: str, value: object, message: str | None = None) -> None: ...

    def __init__(self, name: str, *args: object, **kwargs: object) -> None:
        self.name: str | None = None
        self.value: object = None
        self.reason = name
        if not args and not kwargs:
            super().__init__(name)
            return
        self.name = name
        self.value = args[0] if args else kwargs.get("value")
        message = args[1] if len(args) > 1 else kwargs.get("message")
        text = f"Invalid value {_config_text(self.value)} for configuration {name}"
        self.reason = text if message is None else str(message)
        super().__init__(text if message is None else f"{text}: {message}")


def _config_text(value: object) -> str:
    """The value as Java prints it in such a message."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return "[" + ", ".join(_config_text(item) for item in value) + "]"
        case _:
            return str(value)


class SerializationException(KafkaException):
    """Bytes could not be made of a value, or a value of bytes: an error of that record."""

    java_name: ClassVar[str] = "org.apache.kafka.common.errors.SerializationException"


class KafkaRetriableException(KafkaException):
    """Kafka says that trying again may help. From a task's call: as ``RetriableException``."""

    java_name: ClassVar[str] = "org.apache.kafka.common.errors.RetriableException"


class AuthenticationException(KafkaException):
    """A broker and the client do not accept each other. Trying again does not help before settings have changed."""

    java_name: ClassVar[str] = "org.apache.kafka.common.errors.AuthenticationException"


class SaslAuthenticationException(AuthenticationException):
    """A broker refuses the login, or the client does not believe the broker's answer to it."""

    java_name: ClassVar[str] = "org.apache.kafka.common.errors.SaslAuthenticationException"


class SslAuthenticationException(AuthenticationException):
    """The TLS handshake failed: a certificate is not accepted, or the two sides have no version or cipher in common."""

    java_name: ClassVar[str] = "org.apache.kafka.common.errors.SslAuthenticationException"


class ProducerFencedException(KafkaException):
    """Another producer has the transactional id, or the coordinator has ended the transaction by its timeout.

    The producer sends nothing any more. The present owner of the work creates another producer, which begins at the
    committed offsets. If that happens repeatedly, raise ``transaction.timeout.ms`` or commit more often.
    """

    java_name: ClassVar[str] = "org.apache.kafka.common.errors.ProducerFencedException"


class FencedInstanceIdException(KafkaException):
    """Another consumer has joined the group with the same ``group.instance.id``."""

    java_name: ClassVar[str] = "org.apache.kafka.common.errors.FencedInstanceIdException"


class OffsetOutOfRangeException(KafkaException):
    """A partition has no records at the offset at which reading was to start.

    Args:
        message: The message.
        topic: The topic of the partition.
        partition: Its number. It is not read until it is sought.
        offset: Where it was to be read; None: that is not known.
    """

    java_name: ClassVar[str] = "org.apache.kafka.clients.consumer.OffsetOutOfRangeException"

    def __init__(self, message: str, topic: str = "", partition: int = -1, offset: int | None = None) -> None:
        super().__init__(message)
        self.topic, self.partition, self.offset = topic, partition, offset


class TransactionalIdAuthorizationException(KafkaException):
    """The user may not use a transactional id: grant it WRITE and DESCRIBE on the resource TransactionalId."""

    java_name: ClassVar[str] = "org.apache.kafka.common.errors.TransactionalIdAuthorizationException"


class TransactionAbortableException(KafkaException):
    """The open transaction cannot be committed. ``abort`` it; the next one begins with a clean state."""

    java_name: ClassVar[str] = "org.apache.kafka.common.errors.TransactionAbortableException"


class CommitOutcomeUnknownException(KafkaException):
    """A commit was requested, and its outcome is unknown.

    Call ``commit`` again: it keeps asking until the coordinator answers. The next ``init_transactions`` with the same
    transactional id also settles the transaction; then the records show if it was committed.
    """

    java_name: ClassVar[str] = "org.apache.kafka.common.errors.TimeoutException"


class ConnectException(Exception):
    """Root of Connect's errors. Raised by a task or connector it means: FAILED, with this trace in the status."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.errors.ConnectException"


class RetriableException(ConnectException):
    """Trying the same call again may help.

    From ``start``, ``poll``, ``open`` and ``put`` of a task, and ``start`` and ``task_configs`` of a connector: the
    worker makes the same call again. Where the error does not say when, the wait grows up to
    ``source.retry.delay.max.ms`` (sinks: ``errors.retry.delay.max.ms``; ``put`` without ``context.timeout``: the next
    commit).

    Args:
        args: The message.
        retry_after_s: The seconds until the retry; None to leave that to the worker. It may be longer than the settings
            allow.

    Raises:
        ValueError: ``retry_after_s`` is not a number of seconds.

    >>> RetriableException("too many requests", retry_after_s=30).retry_after_s
    30.0
    >>> RetriableException("too many requests", retry_after_s="30")
    Traceback (most recent call last):
    ValueError: retry_after_s must be a number of seconds, 0 or more, or None; got '30'
    """

    java_name: ClassVar[str] = "org.apache.kafka.connect.errors.RetriableException"

    def __init__(self, *args: object, retry_after_s: float | None = None) -> None:
        super().__init__(*args)
        number = isinstance(retry_after_s, int | float) and not isinstance(retry_after_s, bool)
        if retry_after_s is not None and not (number and 0 <= retry_after_s < float("inf")):
            raise ValueError(f"retry_after_s must be a number of seconds, 0 or more, or None; got {retry_after_s!r}")
        self.retry_after_s: float | None = None if retry_after_s is None else float(retry_after_s)


#: Statuses of a web service that may change soon.
_PASSING_STATUSES: Final = frozenset({408, 425, 429, *range(500, 600)})


def retry_after_s(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """The seconds that an answer of a web service asks to wait, at most an hour; None if it does not.

    Args:
        headers: Those of the answer, with names in lower case or of any case.
        now: Seconds since 1970; None: the clock.

    Source: RFC 9110, Retry-After.
    """
    text = headers.get("retry-after", "").strip()
    try:
        moment = datetime.now(UTC).timestamp() if now is None else now
        # A date is in GMT, whatever it says: without a zone Python would take the zone of this machine.
        wait = float(text) if text.isdecimal() else parsedate_to_datetime(text).replace(tzinfo=UTC).timestamp() - moment
    except (ValueError, TypeError, OverflowError):
        return None
    return min(3600.0, max(0.0, wait))


def http_error(text: str, status: int, headers: Mapping[str, str]) -> ConnectException:
    """The error for an answer of a web service: retriable for a status that may pass, after its ``Retry-After``.

    Args:
        text: The message.
        status: The status of the answer.
        headers: Its headers, see ``retry_after_s``.

    >>> http_error("too many requests", 429, {"retry-after": "30"}).retry_after_s
    30.0
    >>> type(http_error("no such page", 404, {})).__name__
    'ConnectException'

    Source: RFC 9110, status codes.
    """
    if status in _PASSING_STATUSES:
        return RetriableException(text, retry_after_s=retry_after_s(headers))
    return ConnectException(text)


class ServiceUnavailableException(RetriableException):
    """A service that a converter or transform asks cannot be reached, or cannot answer now. Any author may raise it.

    The records are tried again for ``errors.retry.timeout``; then the task fails. ``errors.tolerance=all`` skips none
    of them, because the fault is not theirs.

    Attributes:
        waits_for: The reason that ``explain`` shows until then.
    """

    waits_for: ClassVar[str] = "service"


class ServiceDeniedException(ConfigException):
    """A service that a converter or transform calls requires other credentials. Any author may raise it.

    The task fails; ``errors.tolerance=all`` skips no record, because the fault is one of the settings.
    """


class SparkUnavailableException(RetriableException):
    """The Spark session cannot start, or its JVM is gone. The batch in hand is run again on the next session."""


class SparkOverdueException(ConnectException):
    """A batch took longer on Spark than its transform may; the session was abandoned for it.

    Not retriable: the same rows would take the session from all others again. The worker tries them in parts, in a
    session of their own; a task fails with this error only where there is none, as with Spark Connect.
    """


class SparkSessionLostException(SparkUnavailableException):
    """The Spark session that a task used is gone, and with it the DataFrames that were made on it.

    The worker raises it, and starts the task again where its committed offsets end.
    """


class SparkStoppedException(SparkUnavailableException):
    """The worker, or the task, is stopping. The next instance of the task reads its records again."""


class DataException(ConnectException):
    """A record's data is not what its schema, a transform or a converter needs. Such a record can be tolerated."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.errors.DataException"


class PatternTimeoutException(DataException):
    """A regular expression of the configuration took too long for one text; the message names both."""


class SchemaBuilderException(DataException):
    """A schema was put together wrongly."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.errors.SchemaBuilderException"


class SchemaProjectorException(DataException):
    """A value cannot be made to fit another schema."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.errors.SchemaProjectorException"


class NotFoundException(ConnectException):
    """The connector, task or resource named does not exist."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.errors.NotFoundException"


class AlreadyExistsException(ConnectException):
    """A connector of that name exists already."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.errors.AlreadyExistsException"


class BadRequestException(ConnectException):
    """The request itself is wrong; sending it again will not help."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.runtime.rest.errors.BadRequestException"


class ConflictException(ConnectException):
    """The worker or connector is not in a state where this can be done now."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.runtime.rest.errors.ConnectRestException"


class ForbiddenException(ConnectException):
    """The caller may not make this request."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.runtime.rest.errors.ConnectRestException"


class NotReadyException(ConnectException):
    """The worker cannot do this yet; the same request will work soon."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.runtime.rest.errors.ConnectRestException"


class IllegalWorkerStateException(ConnectException):
    """A context was used at the wrong time, or after its connector or task was closed."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.errors.IllegalWorkerStateException"


class ToleranceExceededException(ConnectException):
    """More errors than ``errors.tolerance`` allows: the task fails."""


class OwnershipLostException(ConnectException):
    """Another task has claimed the partitions of this sink task, which must not write the records that it has in hand.

    If ``put`` or a call by the clock raises it, the worker closes and opens the partitions again, so that ``open`` can
    claim them. The batch comes again, without the partitions that ``open`` has set offsets of. While two tasks take
    partitions from each other, the worker stops the one that was replaced; a task that loses ten times in a row fails.
    """


class OffsetStoreException(ConnectException):
    """Source offsets could not be read or written."""


#: Errors of libraries that correspond to a Java class.
_JAVA_OF_LIBRARIES: Final = {
    ("cimpl", "KafkaException"): "org.apache.kafka.common.KafkaException",
    ("json.decoder", "JSONDecodeError"): "com.fasterxml.jackson.core.JsonParseException",
}


def as_exception(error: BaseException) -> Exception:
    """An error of a plugin's code as one that is handled like others.

    ``sys.exit()`` in a plugin raises ``SystemExit``, which ends loops and threads that handle every ``Exception``.

    >>> as_exception(ValueError("a")), as_exception(SystemExit(3))
    (ValueError('a'), ConnectException('SystemExit: 3'))
    """
    if isinstance(error, Exception):
        return error
    text = str(error)
    made = ConnectException(f"{type(error).__name__}: {text}" if text else type(error).__name__)
    made.__cause__ = error
    return made


def java_class_name(exc: BaseException) -> str:
    """The name of an error's class: Java's where it has one, else its Python path.

    >>> java_class_name(DataException("x"))
    'org.apache.kafka.connect.errors.DataException'
    >>> java_class_name(KeyError("x"))
    'KeyError'
    """
    name = getattr(type(exc), "java_name", None)
    if isinstance(name, str):
        return name
    cls = type(exc)
    for base in cls.__mro__:
        if (base.__module__, base.__qualname__) in _JAVA_OF_LIBRARIES:
            return _JAVA_OF_LIBRARIES[base.__module__, base.__qualname__]
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def stack_trace(exc: BaseException, *, root_first: bool = True) -> str:
    """The trace with its causes, as the status, the log and the dead letter queue show it.

    It begins with the class and the message of the root cause (tools read a trace from there, as in Java), then come
    those of the errors that it caused; the Python frames follow. A cause that the message of the next error repeats is
    left out. Frames of the worker's own code are left out, except the frame that raised the error; the frames of
    authors' connectors, transforms and converters, and of the code that they call, are all there.

    Files are shown by their import path, as ``package/module.py``: a reader of a status over REST does not learn the
    directories of the installation.

    Args:
        exc: The error.
        root_first: True if the root cause comes first; else it comes last, as in Java.

    >>> try:
    ...     raise ConnectException("the rows cannot be read") from KeyError("price")
    ... except ConnectException as error:
    ...     print("\\n".join(stack_trace(error).splitlines()[:2]))
    KeyError: 'price'
    Led to: org.apache.kafka.connect.errors.ConnectException: the rows cannot be read
    """
    return "\n".join([*_heads(exc, root_first), python_trace(exc)]).rstrip("\n")


def _heads(exc: BaseException, root_first: bool) -> list[str]:
    """Class and message of an error and its causes, without causes that the message of their error repeats."""
    chain: list[BaseException] = []
    seen: set[int] = set()
    one: BaseException | None = exc
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        if not chain or not _repeats(str(chain[-1]), one):
            chain.append(one)
        one = one.__cause__
    texts = [f"{java_class_name(one)}: {one}" if str(one) else java_class_name(one) for one in chain]
    if root_first:
        texts.reverse()
    then = "Led to: " if root_first else "Caused by: "
    return [texts[0], *(then + text for text in texts[1:])]


def _repeats(text: str, cause: BaseException) -> bool:
    """True if a message repeats its cause. A bare key or word is meaningless without the class of the error."""
    said = (str(cause), getattr(cause, "strerror", None))
    return any(isinstance(part, str) and part and part in text and not _bare(text, part) for part in said)


def _bare(text: str, part: str) -> bool:
    """True if a text ends with a single word of its cause after a colon."""
    return len(part.split()) < 2 and text.rstrip(" .").endswith(f": {part}")
