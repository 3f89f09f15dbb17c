"""What converters of every format do with the registry, shown with a format whose schemas are names of types."""

from __future__ import annotations

import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar, Protocol

import pytest
from testkit.processes.schema_registry import RegistryStandIn

from penstock.converters.registry.client import (
    Reference,
    RegistryClient,
    RegistryDeniedException,
    RegistryUnavailableException,
    SchemaText,
)
from penstock.converters.registry.converters import (
    AvroConverter,
    Codec,
    JsonSchemaConverter,
    ProtobufConverter,
    RegistryConverter,
)
from penstock.converters.registry.settings import RegistryConfig
from penstock.data import INT32_SCHEMA, OPTIONAL_STRING_SCHEMA, STRING_SCHEMA, Schema, SchemaAndValue
from penstock.errors import ConfigException, DataException, RetriableException, stack_trace

TLS = Path(__file__).parents[3] / "data" / "tls"
#: No pauses, so that tests do not wait.
QUICK = {"retries.wait.ms": 0, "http.read.timeout.ms": 5000}


class NamedCodec(Codec):
    """Its schemas are texts such as ``string`` and ``app.Name``, its payloads are texts."""

    described: ClassVar[list[Schema | None]] = []

    def __init__(self, text: SchemaText, options: object, version: int | None) -> None:
        self.text = text
        self.version = version

    @classmethod
    def text_of(cls, schema: Schema | None, options: object) -> str:
        cls.described.append(schema)
        return "none" if schema is None else schema.name or schema.type.value

    @property
    def record_name(self) -> str | None:
        return self.text.text if "." in self.text.text else None

    def encode(self, schema: Schema | None, value: object) -> bytes:
        return f"{self.text.text}:{value}".encode()

    def cannot_read(self, writer: Codec) -> None:
        return None

    def decode(self, payload: bytes, where: str) -> SchemaAndValue:
        schema = Schema(STRING_SCHEMA.type, name=self.text.text, version=self.version)
        return SchemaAndValue(schema, payload.decode())


class NamesConverter(RegistryConverter):
    format: ClassVar[str] = "NAMES"
    options = RegistryConfig
    takes_schemaless: ClassVar[bool] = True

    def load_codec(self) -> type[NamedCodec]:
        NamedCodec.described.clear()
        return NamedCodec


@pytest.fixture
def registry() -> Iterator[RegistryStandIn]:
    with RegistryStandIn() as found:
        yield found


class OtherConverter(NamesConverter):
    format: ClassVar[str] = "OTHER"


class Make(Protocol):
    def __call__(
        self, settings: Mapping[str, object] | None = None, *, is_key: bool = False, kind: type[NamesConverter] = ...
    ) -> NamesConverter: ...


@pytest.fixture
def converter(registry: RegistryStandIn) -> Iterator[Make]:
    """Makes converters that are closed in the end."""
    with ExitStack() as stack:

        def make(
            settings: Mapping[str, object] | None = None,
            *,
            is_key: bool = False,
            kind: type[NamesConverter] = NamesConverter,
        ) -> NamesConverter:
            made = kind()
            made.configure({"schema.registry.url": registry.url, **QUICK, **(settings or {})}, is_key)
            stack.callback(made.close)
            return made

        yield make


def test_a_schema_is_registered_once_and_its_id_stands_before_each_payload(
    registry: RegistryStandIn, converter: Make
) -> None:
    written = converter()

    messages = [written.from_connect_data("t", STRING_SCHEMA, value) for value in ("a", "b")]

    assert messages == [b"\0\0\0\0\1string:a", b"\0\0\0\0\1string:b"]
    assert registry.requests == ["POST /subjects/t-value/versions"]
    assert NamedCodec.described == [STRING_SCHEMA]


def test_a_message_is_read_with_the_schema_of_its_id_and_its_version_in_the_subject(
    registry: RegistryStandIn, converter: Make
) -> None:
    sent = converter().from_connect_data("t", STRING_SCHEMA, "a")
    converter().from_connect_data("t", INT32_SCHEMA, 1)
    second = converter().from_connect_data("t", INT32_SCHEMA, 2)
    registry.requests.clear()
    read = converter()

    for _ in range(3):
        assert read.to_connect_data("t", sent).value == "string:a"
    schema, value = read.to_connect_data("t", second)

    assert (value, schema and schema.version) == ("int32:2", 2)
    assert registry.requests == [
        "GET /schemas/ids/1",
        "GET /schemas/ids/1/versions",
        "GET /schemas/ids/2",
        "GET /schemas/ids/2/versions",
    ]


def test_null_is_a_tombstone_unless_its_schema_forbids_it(registry: RegistryStandIn, converter: Make) -> None:
    both = converter()

    assert both.from_connect_data("t", None, None) is None
    assert both.from_connect_data("t", OPTIONAL_STRING_SCHEMA, None) is None
    assert both.to_connect_data("t", None) == SchemaAndValue(None, None)
    with pytest.raises(DataException, match=r"The value for topic t is null, and its schema .* is not optional"):
        both.from_connect_data("t", STRING_SCHEMA, None)
    assert registry.requests == []


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("TopicNameStrategy", "t-key"),
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", "app.Name"),
        ("io.confluent.kafka.serializers.subject.TopicRecordNameStrategy", "t-app.Name"),
    ],
)
def test_the_subject_is_named_by_the_strategy(
    registry: RegistryStandIn, converter: Make, strategy: str, subject: str
) -> None:
    named = Schema(STRING_SCHEMA.type, name="app.Name")

    converter({"key.subject.name.strategy": strategy}, is_key=True).from_connect_data("t", named, "a")

    assert registry.requests == [f"POST /subjects/{subject}/versions"]


def test_a_strategy_that_needs_a_record_refuses_other_values(registry: RegistryStandIn, converter: Make) -> None:
    made = converter({"value.subject.name.strategy": "RecordNameStrategy"})

    with pytest.raises(DataException, match="needs a record with a name"):
        made.from_connect_data("t", STRING_SCHEMA, "a")


def test_without_registering_the_schema_has_to_be_there(registry: RegistryStandIn, converter: Make) -> None:
    made = converter({"auto.register.schemas": "false"})
    with pytest.raises(DataException, match="answers 404, code 40401: Subject 't-value' not found"):
        made.from_connect_data("t", STRING_SCHEMA, "a")
    converter().from_connect_data("t", STRING_SCHEMA, "a")

    found = converter({"auto.register.schemas": "false"}).from_connect_data("t", STRING_SCHEMA, "b")

    assert found == b"\0\0\0\0\1string:b"


def test_values_are_written_with_the_latest_schema_or_that_of_an_id_when_that_is_asked_for(
    registry: RegistryStandIn, converter: Make
) -> None:
    converter().from_connect_data("t", STRING_SCHEMA, "a")
    converter().from_connect_data("t", INT32_SCHEMA, 1)
    latest = converter({"auto.register.schemas": "false", "use.latest.version": "true"})
    chosen = converter({"auto.register.schemas": "false", "use.schema.id": "1"})

    assert latest.from_connect_data("t", STRING_SCHEMA, "b") == b"\0\0\0\0\2int32:b"
    assert chosen.from_connect_data("t", INT32_SCHEMA, 3) == b"\0\0\0\0\1string:3"


def test_an_unknown_id_is_that_messages_error_and_not_asked_for_again_soon(
    registry: RegistryStandIn, converter: Make
) -> None:
    made = converter()

    for _ in range(2):
        with pytest.raises(DataException, match=r"schema 7 of the value of topic t.*answers 404.*Schema 7 not found"):
            made.to_connect_data("t", b"\0\0\0\0\7x")

    assert registry.requests == ["GET /schemas/ids/7"]


def test_a_schema_of_another_format_names_the_right_converter(registry: RegistryStandIn, converter: Make) -> None:
    sent = converter().from_connect_data("t", STRING_SCHEMA, "a")
    other = converter(kind=OtherConverter)

    with pytest.raises(DataException, match="Schema 1 of the value of topic t is a schema of format NAMES, not OTHER"):
        other.to_connect_data("t", sent)


def test_an_outage_is_a_retriable_error_that_says_where_and_what_and_passes(
    registry: RegistryStandIn, converter: Make
) -> None:
    sent = converter().from_connect_data("t", STRING_SCHEMA, "a")
    made = converter({"max.retries": 2})
    registry.stop()

    with pytest.raises(RegistryUnavailableException) as found:
        made.to_connect_data("t", sent)
    registry.start()

    assert isinstance(found.value, RetriableException)
    assert f"at {registry.url} does not answer, asked for schema 1 of the value of topic t: ConnectError" in str(
        found.value
    )
    until_it_passes = 200
    for _ in range(until_it_passes):
        try:
            assert made.to_connect_data("t", sent).value == "string:a"
            break
        except RegistryUnavailableException:
            made._configured()[0]._closed.wait(0.02)
    else:
        pytest.fail("the converter does not ask again")


def test_server_errors_are_tried_again_and_then_cost_the_rest_of_a_batch_nothing(
    registry: RegistryStandIn, converter: Make
) -> None:
    made = converter({"max.retries": 2})
    registry.status = 503

    for value in range(50):
        with pytest.raises(RegistryUnavailableException, match=r"asked for .* topic t"):
            made.to_connect_data("t", b"\0\0\0\0\1" + bytes([value]))

    assert registry.requests == ["GET /schemas/ids/1"] * 3


@pytest.mark.parametrize(("status", "tries"), [(None, 3), (500, 3), (503, 3), (401, 1), (403, 1)])
def test_a_registry_that_refuses_writes_one_line_an_attempt(
    registry: RegistryStandIn,
    converter: Make,
    caplog: pytest.LogCaptureFixture,
    status: int | None,
    tries: int,
) -> None:
    made = converter({"max.retries": 2})
    if status is None:
        registry.stop()
    registry.status = status

    with pytest.raises((RegistryUnavailableException, RegistryDeniedException)) as found:
        made.to_connect_data("t", b"\0\0\0\0\1a")

    lines = [one for one in caplog.records if one.name.startswith("penstock.")]
    assert [one.levelname for one in lines] == ["WARNING"] * tries
    for line in lines:
        assert registry.url in line.getMessage()
        assert "schema 1 of the value of topic t" in line.getMessage()
        assert line.exc_info is None
    trace = stack_trace(found.value)
    assert trace.count("Traceback") == 1
    assert "httpx" not in trace
    assert len(trace.splitlines()) < 12


def test_another_address_is_asked_when_one_does_not_answer(registry: RegistryStandIn, converter: Make) -> None:
    with RegistryStandIn() as gone:
        dead = gone.url
    made = converter({"schema.registry.url": f"{dead}, {registry.url}/"})

    assert made.from_connect_data("t", STRING_SCHEMA, "a") == b"\0\0\0\0\1string:a"


def test_credentials_are_sent_and_a_refusal_says_what_to_check(registry: RegistryStandIn, converter: Make) -> None:
    registry.user_info = "me:secret"
    known = {"basic.auth.credentials.source": "USER_INFO", "basic.auth.user.info": "me:secret"}

    assert converter(known).from_connect_data("t", STRING_SCHEMA, "a") is not None
    with pytest.raises(RegistryDeniedException, match=r"answers 401: Unauthorized\. Check basic\.auth\.user\.info"):
        converter().from_connect_data("t", STRING_SCHEMA, "a")


def test_references_are_fetched_once_with_all_they_refer_to(registry: RegistryStandIn, converter: Make) -> None:
    first = converter()
    client, _ = first._configured()
    inner = SchemaText("NAMES", "app.Inner")
    client.register("inner", inner, "a test")
    middle = SchemaText("NAMES", "app.Middle", (Reference("app.Inner", "inner", 1, inner),))
    client.register("middle", middle, "a test")
    outer = SchemaText("NAMES", "app.Outer", (Reference("app.Middle", "middle", 1, middle),))
    found = client.register("outer", outer, "a test")

    read, _ = converter()._configured()

    assert read.by_id(found, "a test") == outer
    assert read.by_id(found, "a test") == outer
    assert registry.requests[3:] == [
        "GET /schemas/ids/3",
        "GET /subjects/middle/versions/1",
        "GET /subjects/inner/versions/1",
    ]


def test_what_is_said_over_tls_needs_a_trusted_certificate_and_may_need_ones_own() -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(TLS / "ca.pem"))
    tls.load_cert_chain(str(TLS / "server.pem"))
    tls.verify_mode = ssl.CERT_REQUIRED
    trust = {"schema.registry.ssl.truststore.location": str(TLS / "ca.pem"), "max.retries": 0}
    own = {**trust, "schema.registry.ssl.keystore.location": str(TLS / "client.pem")}
    with RegistryStandIn(tls=tls) as registry, ExitStack() as stack:
        found: list[object] = []
        for settings in (own, trust, {"max.retries": 0}):
            made = NamesConverter()
            made.configure({"schema.registry.url": registry.url, **settings}, False)
            stack.callback(made.close)
            try:
                found.append(made.from_connect_data("t", STRING_SCHEMA, "a"))
            except RegistryUnavailableException as error:
                found.append(str(error))

    assert found[0] == b"\0\0\0\0\1string:a"
    assert "does not answer" in str(found[1])
    assert "CERTIFICATE_VERIFY_FAILED" in str(found[2])


def test_a_registry_with_a_certificate_of_another_name_is_refused() -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(str(TLS / "elsewhere.pem"))
    with RegistryStandIn(tls=tls) as registry:
        made = NamesConverter()
        trust = {"schema.registry.ssl.truststore.location": str(TLS / "elsewhere.pem"), "max.retries": 0}
        made.configure({"schema.registry.url": registry.url, **trust}, False)
        with pytest.raises(RegistryUnavailableException, match=r"CERTIFICATE_VERIFY_FAILED.*127\.0\.0\.1"):
            made.from_connect_data("t", STRING_SCHEMA, "a")
        made.close()
        assert registry.requests == []


def test_closing_a_converter_ends_its_pause(registry: RegistryStandIn) -> None:
    registry.status = 500
    settings = RegistryConfig.parse(
        {"schema.registry.url": registry.url, "retries.wait.ms": 60_000, "retries.max.wait.ms": 60_000,
         "converter.type": "value"}
    )  # fmt: skip
    client = RegistryClient(settings, jitter=lambda: 1.0)
    errors: list[Exception] = []

    def ask() -> None:
        try:
            client.by_id(1, "a test")
        except RegistryUnavailableException as error:
            errors.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    while not registry.requests:
        asking.join(0.01)
    client.close()
    asking.join(10)

    assert not asking.is_alive()
    assert [type(one) for one in errors] == [RegistryUnavailableException]


def test_without_the_extra_the_converter_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {
        "confluent_kafka.schema_registry": NamesConverter,
        "penstock.converters.registry.avro.codec": AvroConverter,
        "penstock.converters.registry.json_schema.codec": JsonSchemaConverter,
        "penstock.converters.registry.protobuf.codec": ProtobufConverter,
    }
    for package, kind in kinds.items():
        with monkeypatch.context() as without:
            without.setitem(sys.modules, package, None)
            with pytest.raises(ConfigException, match=r"pip install penstock\[registry\]"):
                kind().configure({"schema.registry.url": "http://localhost:8081"}, False)


def test_importing_the_converters_imports_nothing_of_the_extra() -> None:
    code = (
        "import sys; import penstock.converters.registry.converters; "
        "extra = ('confluent_kafka.schema_registry', 'fastavro', 'httpx2', 'authlib', 'jsonschema'); "
        "extra += ('google.protobuf', 'referencing'); "
        "print([one for one in extra if one in sys.modules])"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_addresses_are_shown_without_their_passwords(registry: RegistryStandIn) -> None:
    settings = RegistryConfig.parse(
        {"schema.registry.url": registry.url.replace("//", "//me:hush@"), "converter.type": "value", "max.retries": 0}
    )
    client = RegistryClient(settings)
    registry.stop()

    with pytest.raises(RegistryUnavailableException) as found:
        client.by_id(1, "a test")
    client.close()

    assert "//me:***@127.0.0.1" in str(found.value)
    assert "hush" not in str(found.value)
