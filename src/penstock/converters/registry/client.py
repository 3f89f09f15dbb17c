"""All that knows the schema registry's client: requests, what is remembered of answers, and what errors mean.

Main types: ``RegistryClient``, ``SchemaText`` (a schema with all it refers to), ``TextForm`` (one of several forms of
it), ``RegistryUnavailableException`` (an outage: the same record may pass later).

An outage costs a batch of records little: after it nothing is asked for as long as the last request took (at least a
quarter of a second), and until an answer comes each further request is made once, without repetitions.

Thread: a task's pipeline thread; ``close`` may come from any and ends a pause.
Source: io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient, rest.RestService.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from penstock.converters.registry.settings import RegistryConfig
from penstock.errors import (
    ConfigException,
    DataException,
    ServiceDeniedException,
    ServiceUnavailableException,
)
from penstock.telemetry import waiting_for

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema as WireSchema
    from confluent_kafka.schema_registry import SchemaRegistryClient

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


_log = logging.getLogger(__name__)

#: Answers that say nothing about the request itself.
_PASSING: Final = frozenset({408, 425, 429})
_LEAST_PAUSE_S: Final = 0.25
_MISSING: Final = 404
#: References deeper than this are taken for a cycle.
_MAX_DEPTH: Final = 32


class RegistryUnavailableException(ServiceUnavailableException):
    """The registry cannot be reached, or cannot answer now."""

    waits_for: ClassVar[str] = "schema_registry"


class RegistryDeniedException(ServiceDeniedException):
    """The registry wants other credentials."""


@dataclass(frozen=True)
class Reference:
    """A schema that another one refers to.

    Attributes:
        name: What the other one calls it.
        subject: Where it is registered.
        version: Its version there.
        schema: The schema itself.
    """

    name: str
    subject: str
    version: int
    schema: SchemaText


@dataclass(frozen=True)
class SchemaText:
    """A schema as the registry keeps it.

    Attributes:
        format: ``AVRO``, ``PROTOBUF`` or ``JSON``.
        text: Its text.
        references: What it refers to, each with its own references.
    """

    format: str
    text: str
    references: tuple[Reference, ...] = ()

    def texts(self) -> dict[str, str]:
        """The texts of all it refers to, at any depth, by the names that are used for them; what is needed first
        comes first."""
        found: dict[str, str] = {}
        for one in self.references:
            found |= one.schema.texts()
            found[one.name] = one.schema.text
        return found


@dataclass(frozen=True)
class TextForm:
    """One of several forms in which a registry gives schemas of a format."""

    format: str
    name: str
    is_text: Callable[[str], bool]

    def fits(self, answer: Any) -> bool:
        """True if the schema in an answer is in this form, or of a format that has no such form."""
        schema = getattr(answer, "schema", answer)
        return schema.schema_type != self.format or self.is_text(schema.schema_str or "")


@dataclass(frozen=True)
class Registered:
    """A schema with the id that messages carry, and its version where that is known."""

    id: int
    schema: SchemaText
    version: int | None = None


@dataclass
class _Outage:
    """The client's state after a call without an answer: the time of the next attempt, and the reason."""

    asked_again_at: float
    reason: str


class RegistryClient:
    """One converter's way to the registry.

    Args:
        settings: What was set.
        form: The form that schemas of a format are wanted in; None = as the registry has them.
        clock: Seconds that only grow.
        jitter: Uniform in [0, 1).

    Raises:
        ConfigException: The extra is not installed, or the client refuses its settings.
    """

    def __init__(
        self,
        settings: RegistryConfig,
        form: TextForm | None = None,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._settings = settings
        self._form = form
        self._clock = clock
        self._jitter = jitter
        self._closed = threading.Event()
        self._outage: _Outage | None = None
        size, refusal_s = settings.cache_size, settings.missing_id_cache_ttl_sec
        self._by_id: Memory[int, SchemaText] = Memory(size, refusal_s, clock)
        self._references: Memory[tuple[str, int], SchemaText] = Memory(size, refusal_s, clock)
        self._client = _connect(settings)

    def close(self) -> None:
        """Ends a pause between two requests, and the connections."""
        self._closed.set()
        self._client.close()

    # ------------------------------------------------------------------ reading
    def by_id(self, schema_id: int, where: str) -> SchemaText:
        """The schema of an id, with all it refers to. Remembered, also that there is none.

        Args:
            schema_id: What a message carries.
            where: The message, for errors.

        Raises:
            DataException: There is no such schema, or what it refers to is not there.
            ConfigException: The registry refuses this client.
            RegistryUnavailableException: It does not answer.
        """

        def make() -> SchemaText:
            what = f"schema {schema_id} of {where}"
            found = self._fetched(what, lambda client, form: client.get_schema(schema_id, fmt=form))
            return self._resolved(found, what)

        return self._by_id.get(schema_id, make)

    def version_of(self, subject: str, schema_id: int, where: str) -> int | None:
        """The version a schema has in a subject; None where the subject has it not."""
        what = f"the versions of schema {schema_id} of {where}"
        try:
            found = self._ask(what, lambda client: client.get_schema_versions(schema_id))
        except LASTING:
            return None
        return next((one.version for one in found if one.subject == subject), None)

    # ------------------------------------------------------------------ writing
    def register(self, subject: str, schema: SchemaText, where: str) -> int:
        """Registers a schema, or finds it, and returns its id.

        Raises:
            DataException: The registry refuses it, or its subject's rules do (also ConfigException, as in Java).
            RegistryUnavailableException: It does not answer.
        """
        normalize = self._settings.normalize_schemas
        wire = _to_wire(schema)
        return int(
            self._ask(
                f"registering the schema of {where} under subject {subject}",
                lambda client: client.register_schema(subject, wire, normalize),
            )
        )

    def look_up(self, subject: str, schema: SchemaText, where: str) -> int:
        """The id of a schema that the subject has. Errors are those of ``register``."""
        wire = _to_wire(schema)
        found = self._ask(
            f"the schema of {where} under subject {subject} (auto.register.schemas=false: register it first)",
            lambda client: client.lookup_schema(subject, wire, self._settings.normalize_schemas),
        )
        return int(found.schema_id)

    def latest(self, subject: str, where: str) -> Registered:
        """The latest schema of a subject. Errors are those of ``register``."""
        what = f"the latest schema of subject {subject} for {where}"
        # ``get_version`` and not ``get_latest_version``: that one remembers its answer for ever.
        found = self._fetched(what, lambda client, form: client.get_version(subject, "latest", fmt=form))
        return Registered(int(found.schema_id), self._resolved(found.schema, what), found.version)

    # ------------------------------------------------------------------ references
    def _resolved(self, found: WireSchema, what: str, depth: int = 0) -> SchemaText:
        if depth > _MAX_DEPTH:
            raise DataException(f"The references of {what} are more than {_MAX_DEPTH} deep: they lead in a circle")
        references = tuple(
            Reference(
                str(one.name),
                str(one.subject),
                int(one.version or 0),
                self._referenced(str(one.subject), int(one.version or 0), what, depth),
            )
            for one in found.references or ()
        )
        return SchemaText(found.schema_type or "AVRO", found.schema_str or "", references)

    def _referenced(self, subject: str, version: int, what: str, depth: int) -> SchemaText:
        def make() -> SchemaText:
            name = f"{what}, its reference to version {version} of subject {subject}"
            # What was deleted softly is still referred to.
            answer = self._fetched(name, lambda client, form: client.get_version(subject, version, True, form))
            return self._resolved(answer.schema, name, depth + 1)

        return self._references.get((subject, version), make)

    # ------------------------------------------------------------------ requests
    def _fetched(self, what: str, request: Callable[[SchemaRegistryClient, str | None], Any]) -> Any:
        """Asks for a schema, and once more in the wanted form when it is in another: not all registries have that."""
        answer = self._ask(what, lambda client: request(client, None))
        form = self._form
        if form is None or form.fits(answer):
            return answer
        # The client remembers answers, whatever form was asked for; what is needed again is remembered here.
        client: Any = self._client
        client.clear_caches()
        try:
            other = request(client, form.name)
        except Exception:  # some answer with errors of their own, as outages do: the text that is there is enough
            return answer
        finally:
            client.clear_caches()
        return other if form.fits(other) else answer

    @waiting_for("schema_registry")
    def _ask(self, what: str, request: Callable[[SchemaRegistryClient], Any]) -> Any:
        """Makes a request, again while there is an outage, and gives its errors their meaning."""
        from confluent_kafka.schema_registry import SchemaRegistryError

        outage = self._outage
        if outage is not None and self._clock() < outage.asked_again_at:
            raise self._unavailable(what, outage.reason)
        tries = 1 + self._settings.max_retries if outage is None else 1
        for attempt in range(1, tries + 1):
            began = self._clock()
            try:
                answer = request(self._client)
            except SchemaRegistryError as error:
                if error.http_status_code < 500 and error.http_status_code not in _PASSING:
                    self._outage = None
                    refused = self._refused(what, error)
                    if isinstance(refused, RegistryDeniedException):
                        _log.warning("%s", refused)
                    # The message says all that the answer did; where the client's library found it helps nobody.
                    raise refused from None
                reason = _reason(error)
            except UnicodeEncodeError as error:
                raise DataException(f"Asked for {what}: its text cannot be sent, {error}") from error
            except Exception as error:  # no answer, or one that no registry gives, such as a proxy's page
                reason = _reason(error)
            else:
                self._outage = None
                return answer
            took = self._clock() - began
            _log.warning(
                "The schema registry at %s does not answer, asked for %s: %s", self._settings.shown_urls, what, reason
            )
            if attempt == tries or not self._pause(attempt):
                break
        self._outage = _Outage(self._clock() + max(took, _LEAST_PAUSE_S), reason)
        raise self._unavailable(what, reason) from None

    def _pause(self, attempt: int) -> bool:
        """Waits before the next try, for a random part of a time that doubles; False when the converter is closed."""
        longest = min(self._settings.retries_wait_ms * 2 ** (attempt - 1), self._settings.retries_max_wait_ms) / 1000
        return not self._closed.wait(longest * self._jitter())

    def _unavailable(self, what: str, reason: str) -> RegistryUnavailableException:
        return RegistryUnavailableException(
            f"The schema registry at {self._settings.shown_urls} does not answer, asked for {what}: {reason}. Check "
            "schema.registry.url and that the registry runs; errors.retry.timeout says for how long this record is "
            "tried again"
        )

    def _refused(self, what: str, error: Any) -> DataException | ConfigException:
        said = f"the schema registry at {self._settings.shown_urls} answers {error.http_status_code}"
        said += "" if error.error_code in (error.http_status_code, -1, None) else f", code {error.error_code}"
        text = f"Asked for {what}, {said}: {error.error_message}"
        if error.http_status_code in (401, 403):
            return RegistryDeniedException(
                f"{text}. Check basic.auth.user.info, bearer.auth.* or the client's certificate"
            )
        if error.http_status_code == _MISSING:
            return DataException(f"{text}. Check that schema.registry.url is the registry that the schema is in")
        # As in Java, where a code of three digits is the client's fault: an incompatible schema, for one.
        if error.error_code is not None and error.error_code // 100 == 4:
            return ConfigException(text)
        return DataException(text)


def _reason(cause: BaseException) -> str:
    return f"{type(cause).__name__}: {cause}"


def _to_wire(schema: SchemaText) -> WireSchema:
    from confluent_kafka.schema_registry import Schema, SchemaReference

    references = [SchemaReference(one.name, one.subject, one.version) for one in schema.references]
    return Schema(schema.text, schema.format, references)


def _connect(settings: RegistryConfig) -> SchemaRegistryClient:
    """The client, which tries each address once for each request; repetitions are ours, so that they can be ended."""
    more = settings.client()
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise ConfigException(
            f"Converters with a schema registry need more packages ({error}): pip install penstock[registry]"
        ) from error
    own: dict[str, object] = {"url": ",".join(settings.urls), "max.retries": 0, "cache.capacity": settings.cache_size}
    if not any(url.startswith("https:") for url in settings.urls):
        # Nothing will be checked against the trusted certificates, and reading them takes longer than many requests.
        own["ssl.ca.location"] = False
    try:
        return SchemaRegistryClient({**own, **more})
    except (ValueError, TypeError, OSError) as error:
        raise ConfigException(f"The schema registry's client cannot be made with its settings: {error}") from error
