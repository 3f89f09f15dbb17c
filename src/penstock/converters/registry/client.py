"""The schema registry's client: requests, cached responses, and the meaning of errors.

An outage costs a batch of records little: after a failed request the client waits as long as that request took (at
least a quarter of a second), and until a response comes it makes each further request only once.

Thread: a task's pipeline thread; any thread may call ``close``, which ends a pause.
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
from penstock.errors import ConfigException, DataException, ServiceDeniedException, ServiceUnavailableException
from penstock.telemetry import waiting_for

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema as WireSchema
    from confluent_kafka.schema_registry import SchemaRegistryClient

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

#: Errors that the same request would cause again; an outage is not one of them.
LASTING: Final = (DataException, ConfigException)


class RecentValues(Generic[K, V]):
    """A cache of the most recently used values by key, and of errors.

    Args:
        size: The number of cached values, and of cached errors.
        refusal_s: The seconds for which a cached error is raised again without a new call.
        clock: Monotonic seconds.
    """

    def __init__(self, size: int, refusal_s: float, clock: Callable[[], float]) -> None:
        self._size = size
        self._refusal_s = refusal_s
        self._clock = clock
        self._kept: OrderedDict[K, tuple[V, float | None]] = OrderedDict()
        self._refused: OrderedDict[K, tuple[float, DataException | ConfigException]] = OrderedDict()

    def get(self, key: K, make: Callable[[], V], ttl_s: float | None = None) -> V:
        """The value of a key, from ``make`` if it is not cached; a new value is cached for ``ttl_s`` seconds, None =
        for ever.

        Raises:
            DataException: Raised by ``make``, now or recently; the same for ConfigException.
            RetriableException: Raised by ``make`` now.
        """
        found = self._kept.get(key)
        if found is not None and (found[1] is None or self._clock() < found[1]):
            self._kept.move_to_end(key)
            return found[0]
        refused = self._refused.get(key)
        if refused is not None:
            if self._clock() < refused[0]:
                # A new object, because an exception that is raised repeatedly collects traces.
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

#: Responses that say nothing about the request itself.
_PASSING: Final = frozenset({408, 425, 429})
_LEAST_PAUSE_S: Final = 0.25
_MISSING: Final = 404
#: Deeper references count as a cycle.
_MAX_DEPTH: Final = 32


class RegistryUnavailableException(ServiceUnavailableException):
    """The registry cannot be reached, or cannot answer now."""

    waits_for: ClassVar[str] = "schema_registry"


class RegistryDeniedException(ServiceDeniedException):
    """The registry wants other credentials."""


@dataclass(frozen=True)
class Reference:
    """A schema to which another schema refers by ``name``; it is registered in a subject, with a version."""

    name: str
    subject: str
    version: int
    schema: SchemaText


@dataclass(frozen=True)
class SchemaText:
    """A schema as the registry keeps it, with the schemas to which it refers."""

    format: str
    text: str
    references: tuple[Reference, ...] = ()

    def texts(self) -> dict[str, str]:
        """The texts of all references at any depth, by name, in the order of dependency: referenced schemas come
        first.
        """
        found: dict[str, str] = {}
        for one in self.references:
            found |= one.schema.texts()
            found[one.name] = one.schema.text
        return found


@dataclass(frozen=True)
class TextForm:
    """One of several forms in which a registry returns schemas of a format."""

    format: str
    name: str
    is_text: Callable[[str], bool]

    def fits(self, answer: Any) -> bool:
        """True if the schema in a response is in this form, or its format does not have this form."""
        schema = getattr(answer, "schema", answer)
        return schema.schema_type != self.format or self.is_text(schema.schema_str or "")


@dataclass(frozen=True)
class Registered:
    """A schema with the id that messages carry, and its version where that is known."""

    id: int
    schema: SchemaText
    version: int | None = None


class RegistryClient:
    """The registry client of one converter. ``jitter`` is uniform in [0, 1), ``form`` the requested form of schemas.

    Raises:
        ConfigException: The extra is not installed, or the client rejects its settings.
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
        #: After a request without a response: the time of the next attempt, and the reason.
        self._outage: tuple[float, str] | None = None
        size, refusal_s = settings.cache_size, settings.missing_id_cache_ttl_sec
        self._by_id: RecentValues[int, SchemaText] = RecentValues(size, refusal_s, clock)
        self._references: RecentValues[tuple[str, int], SchemaText] = RecentValues(size, refusal_s, clock)
        self._client = _connect(settings)

    def close(self) -> None:
        """Ends a pause between two requests, and the connections."""
        self._closed.set()
        self._client.close()

    def by_id(self, schema_id: int, where: str) -> SchemaText:
        """Returns the schema with an id, with all references. Caches the result, even that there is none.

        Raises:
            DataException: The schema, or a schema to which it refers, does not exist.
            ConfigException: The registry rejects this client.
            RegistryUnavailableException: The registry does not respond.
        """

        def make() -> SchemaText:
            what = f"schema {schema_id} of {where}"
            found = self._fetched(what, lambda client, form: client.get_schema(schema_id, fmt=form))
            return self._resolved(found, what)

        return self._by_id.get(schema_id, make)

    def version_of(self, subject: str, schema_id: int, where: str) -> int | None:
        """The version of a schema in a subject; None if the subject does not have it."""
        what = f"the versions of schema {schema_id} of {where}"
        try:
            found = self._ask(what, lambda client: client.get_schema_versions(schema_id))
        except LASTING:
            return None
        return next((one.version for one in found if one.subject == subject), None)

    def register(self, subject: str, schema: SchemaText, where: str) -> int:
        """Registers a schema unless it is registered already, and returns its id.

        Raises:
            DataException: The registry, or a rule of the subject, rejects it (also ConfigException, as in Java).
            RegistryUnavailableException: The registry does not respond.
        """
        normalize = self._settings.normalize_schemas
        wire = _to_wire(schema)
        what = f"registering the schema of {where} under subject {subject}"
        return int(self._ask(what, lambda client: client.register_schema(subject, wire, normalize)))

    def look_up(self, subject: str, schema: SchemaText, where: str) -> int:
        """The id of a schema that the subject has. Errors are as for ``register``."""
        wire = _to_wire(schema)
        found = self._ask(
            f"the schema of {where} under subject {subject} (auto.register.schemas=false: register it first)",
            lambda client: client.lookup_schema(subject, wire, self._settings.normalize_schemas),
        )
        return int(found.schema_id)

    def latest(self, subject: str, where: str) -> Registered:
        """The latest schema of a subject. Errors are as for ``register``."""
        what = f"the latest schema of subject {subject} for {where}"
        # Not ``get_latest_version``, which caches its result for ever.
        found = self._fetched(what, lambda client, form: client.get_version(subject, "latest", fmt=form))
        return Registered(int(found.schema_id), self._resolved(found.schema, what), found.version)

    def _resolved(self, found: WireSchema, what: str, depth: int = 0) -> SchemaText:
        if depth > _MAX_DEPTH:
            raise DataException(f"The references of {what} are more than {_MAX_DEPTH} deep: they lead in a circle")
        named = [(str(one.name), str(one.subject), int(one.version or 0)) for one in found.references or ()]
        references = (Reference(*one, self._referenced(*one[1:], what, depth)) for one in named)
        return SchemaText(found.schema_type or "AVRO", found.schema_str or "", tuple(references))

    def _referenced(self, subject: str, version: int, what: str, depth: int) -> SchemaText:
        def make() -> SchemaText:
            name = f"{what}, its reference to version {version} of subject {subject}"
            # A softly deleted schema may still be referenced.
            answer = self._fetched(name, lambda client, form: client.get_version(subject, version, True, form))
            return self._resolved(answer.schema, name, depth + 1)

        return self._references.get((subject, version), make)

    def _fetched(self, what: str, request: Callable[[SchemaRegistryClient, str | None], Any]) -> Any:
        """Requests a schema, and again in the requested form if it has another: not all registries support forms."""
        answer = self._ask(what, lambda client: request(client, None))
        form = self._form
        if form is None or form.fits(answer):
            return answer
        # The client caches responses regardless of the requested form; this module has its own cache.
        client: Any = self._client
        client.clear_caches()
        try:
            other = request(client, form.name)
        except Exception:  # Some registries do not support the form: the existing text is enough.
            return answer
        finally:
            client.clear_caches()
        return other if form.fits(other) else answer

    @waiting_for("schema_registry")
    def _ask(self, what: str, request: Callable[[SchemaRegistryClient], Any]) -> Any:
        """Makes a request, repeats it during an outage, and translates its errors."""
        from confluent_kafka.schema_registry import SchemaRegistryError

        outage = self._outage
        if outage is not None and self._clock() < outage[0]:
            raise self._unavailable(what, outage[1])
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
                    # The message contains everything from the response; the client's own trace adds only noise.
                    raise refused from None
                reason = f"{type(error).__name__}: {error}"
            except UnicodeEncodeError as error:
                raise DataException(f"Asked for {what}: its text cannot be sent, {error}") from error
            except Exception as error:  # No response, or a response that no registry sends, such as a proxy's page.
                reason = f"{type(error).__name__}: {error}"
            else:
                self._outage = None
                return answer
            took = self._clock() - began
            _log.warning(
                "The schema registry at %s does not answer, asked for %s: %s", self._settings.shown_urls, what, reason
            )
            if attempt == tries or not self._pause(attempt):
                break
        self._outage = self._clock() + max(took, _LEAST_PAUSE_S), reason
        raise self._unavailable(what, reason) from None

    def _pause(self, attempt: int) -> bool:
        """Waits before the next attempt, for a random part of a time that doubles; False if the converter was
        closed.
        """
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
        # As in Java, a three-digit code is the client's fault, such as an incompatible schema.
        if error.error_code is not None and error.error_code // 100 == 4:
            return ConfigException(text)
        return DataException(text)


def _to_wire(schema: SchemaText) -> WireSchema:
    from confluent_kafka.schema_registry import Schema, SchemaReference

    references = [SchemaReference(one.name, one.subject, one.version) for one in schema.references]
    return Schema(schema.text, schema.format, references)


def _connect(settings: RegistryConfig) -> SchemaRegistryClient:
    """The client, which tries each address once for each request; this module repeats requests, so that it can stop."""
    more = settings.client()
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise ConfigException(
            f"Converters with a schema registry need more packages ({error}): pip install penstock[registry]"
        ) from error
    own: dict[str, object] = {"url": ",".join(settings.urls), "max.retries": 0, "cache.capacity": settings.cache_size}
    if not any(url.startswith("https:") for url in settings.urls):
        # No certificate will be checked, and loading the trusted ones takes longer than many requests.
        own["ssl.ca.location"] = False
    try:
        return SchemaRegistryClient({**own, **more})
    except (ValueError, TypeError, OSError) as error:
        raise ConfigException(f"The schema registry's client cannot be made with its settings: {error}") from error
