"""Who may call: browsers, users with passwords, https with certificates, admin listeners; and headers of answers."""

from __future__ import annotations

import ssl
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import httpx
import pytest
from testkit.doubles.control_plane import Setup, running
from tests.unit.rest.api_client import serving

from penstock.api import RestExtension, RestExtensionContext, RestRequest, RestResponse
from penstock.errors import ConfigException, ConnectException
from penstock.plugins import Plugins
from penstock.rest.app import AppOptions, ResponseHeaders, parse_header_rules
from penstock.rest.extensions import BasicAuthExtension, Extensions, HerderState, login_file, read_users, users_file
from penstock.rest.server import WorkerRest, advertised, listeners_of, server_context
from penstock.rest.services import Services
from penstock.settings.worker import StandaloneSettings
from penstock.validation.plugin_checks import PluginCatalog

CERTIFICATES = Path(__file__).parents[2] / "data" / "tls"


# ------------------------------------------------------------------ browsers
def test_browsers_may_call_from_the_origins_that_are_set() -> None:
    options = AppOptions(allow_origin="https://ui.example, http://*.test", allow_methods="GET,PUT")
    with serving(options=options) as api:
        mine = api.http.get("/connectors", headers={"Origin": "https://ui.example"})
        assert mine.headers["access-control-allow-origin"] == "https://ui.example"
        other = api.http.get("/connectors", headers={"Origin": "https://evil.example"})
        assert other.status_code == 200
        assert "access-control-allow-origin" not in other.headers
        assert other.headers["vary"] == api.http.get("/connectors").headers["vary"] == "Origin"
        asked = {"Origin": "http://a.test", "Access-Control-Request-Method": "PUT"}
        preflight = api.http.options("/connectors", headers=asked)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-methods"] == "GET,PUT"
        assert preflight.headers["access-control-allow-headers"] == "Content-Type"
        assert preflight.headers["access-control-max-age"] == "60"
        refused = api.http.options("/connectors", headers={**asked, "Access-Control-Request-Method": "DELETE"})
        assert "access-control-allow-origin" not in refused.headers


def test_an_origin_that_somebody_made_up_takes_no_time() -> None:
    origins = "https://" + "*." * 8 + "example, https://ÜI.example"
    with serving(options=AppOptions(allow_origin=origins)) as api:
        began = time.monotonic()
        answer = api.http.get("/connectors", headers={"Origin": "https://" + "a." * 1500 + "exampla"})
        assert time.monotonic() - began < 2
        assert "access-control-allow-origin" not in answer.headers
        named = "https://" + "a." * 9 + "EXAMPLE"
        assert api.http.get("/connectors", headers={"Origin": named}).headers["access-control-allow-origin"] == named


def test_browsers_may_not_call_from_elsewhere_by_default() -> None:
    with serving() as api:
        answer = api.http.get("/connectors", headers={"Origin": "https://ui.example"})
        assert "access-control-allow-origin" not in answer.headers
        assert "vary" not in answer.headers


# ------------------------------------------------------------------ headers
def test_headers_are_added_to_every_answer() -> None:
    rules = parse_header_rules('set X-Frame-Options: DENY, "add Cache-Control: no-cache, no-store", setDate Expires: 0')
    with serving(options=AppOptions(header_rules=rules)) as api:
        for path, status in [("/", 200), ("/nope", 404)]:
            answer = api.http.get(path)
            assert answer.status_code == status
            assert answer.headers["x-frame-options"] == "DENY"
            assert answer.headers["cache-control"] == "no-cache, no-store"
            assert answer.headers["expires"].endswith("GMT")


def test_a_header_is_replaced_or_added_and_dates_count_from_now() -> None:
    from starlette.datastructures import MutableHeaders

    headers = MutableHeaders({"x-a": "1", "x-b": "1"})
    rules = parse_header_rules("set X-A: 2, add X-B: 2, setDate X-C: 1000, setDate X-D: soon")
    shown = ResponseHeaders(lambda scope, receive, send: None, rules, now_s=lambda: 0.0)  # type: ignore[arg-type,return-value]
    for rule in rules:
        shown._apply(rule, headers)
    assert headers.getlist("x-a") == ["2"]
    assert headers.getlist("x-b") == ["1", "2"]
    assert headers["x-c"] == "Thu, 01 Jan 1970 00:00:01 GMT"
    assert "x-d" not in headers


# ------------------------------------------------------------------ listeners
HTTP, HTTPS = "http://127.0.0.1:0", "https://127.0.0.1:0"


def settings_of(listeners: str = HTTP, more: Mapping[str, str] = MappingProxyType({})) -> StandaloneSettings:
    needed = {"bootstrap.servers": "x:1", "key.converter": "x.Y", "value.converter": "x.Y"}
    file = {"offset.storage.file.filename": "offsets"}
    return StandaloneSettings.parse({**needed, **file, "listeners": listeners, **more})


@contextmanager
def worker_rest(settings: StandaloneSettings) -> Iterator[tuple[Setup, WorkerRest, list[int]]]:
    with running() as setup:
        rest = WorkerRest(settings)
        rest.start(Services(setup.herder, "4.3.0", "unknown", PluginCatalog(Plugins())))
        try:
            ports = [int(sock.getsockname()[1]) for _, sock in [*rest._main, *rest._admin]]
            yield setup, rest, ports
        finally:
            rest.stop()


def pem(name: str) -> str:
    return str(CERTIFICATES / name)


def trusting(*certificate: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=pem("ca.pem"))
    if certificate:
        context.load_cert_chain(pem(certificate[0]))
    return context


def test_http_and_https_listeners_serve_the_same_api() -> None:
    settings = settings_of(f"{HTTPS},{HTTP}", {"ssl.keystore.location": pem("server.pem")})
    with worker_rest(settings) as (_, rest, (secure, plain)):
        with httpx.Client(verify=trusting()) as client:
            assert client.get(f"https://127.0.0.1:{secure}/connectors").json() == []
            assert client.get(f"http://127.0.0.1:{plain}/connectors").json() == []
            created = client.post(
                f"https://127.0.0.1:{secure}/connectors",
                json={"name": "a", "config": {"connector.class": "testkit.connectors.probes:ProbeSource"}},
            )
            assert created.headers["location"] == f"https://127.0.0.1:{secure}/connectors/a"
        assert rest.advertised == f"127.0.0.1:{plain}"


def test_clients_need_a_certificate_when_that_is_required() -> None:
    tls = {
        "ssl.keystore.key": Path(pem("server.pem")).read_text(),
        "ssl.keystore.certificate.chain": "\n",
        "ssl.truststore.certificates": Path(pem("ca.pem")).read_text(),
        "ssl.client.auth": "required",
    }
    with worker_rest(settings_of(HTTPS, tls)) as (_, rest, (port,)):
        url = f"https://127.0.0.1:{port}/connectors"
        with httpx.Client(verify=trusting("client.pem")) as client:
            assert client.get(url).status_code == 200
        with httpx.Client(verify=trusting()) as client, pytest.raises(httpx.TransportError):
            client.get(url)
        assert rest.advertised == f"127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("key_store", "trust_store"),
    [
        ({"type": "PKCS12", "location": "server.p12"}, {"type": "PKCS12", "location": "trust.p12"}),
        ({"type": "JKS", "location": "server.jks", "key": "keypass1"}, {"type": "JKS", "location": "trust.jks"}),
        ({"location": "server.p12"}, {"type": "PEM", "location": "ca.pem"}),
    ],
)
def test_javas_key_stores_serve_https_with_certificates_of_clients(
    key_store: Mapping[str, str], trust_store: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tls = {
        "ssl.keystore.type": key_store.get("type", "JKS"),
        "ssl.keystore.location": pem(key_store["location"]),
        "ssl.keystore.password": "storepass",
        "ssl.truststore.type": trust_store["type"],
        "ssl.truststore.location": pem(trust_store["location"]),
        "ssl.truststore.password": "storepass",
        "ssl.client.auth": "required",
    }
    if "key" in key_store:
        tls["ssl.key.password"] = key_store["key"]
    with worker_rest(settings_of(HTTPS, tls)) as (_, _, (port,)):
        url = f"https://127.0.0.1:{port}/connectors"
        with httpx.Client(verify=trusting("client.pem")) as client:
            assert client.get(url).json() == []
        with httpx.Client(verify=trusting()) as client, pytest.raises(httpx.TransportError):
            client.get(url)
    assert list(tmp_path.iterdir()) == [], "keys must not be left in files"


def test_a_server_sends_the_whole_chain_of_its_certificate() -> None:
    tls = {"ssl.keystore.location": pem("chain.p12"), "ssl.keystore.password": "storepass"}
    root_alone = ssl.create_default_context(cafile=pem("chain-root.pem"))
    with worker_rest(settings_of(HTTPS, tls)) as (_, _, (port,)):
        assert httpx.get(f"https://127.0.0.1:{port}/connectors", verify=root_alone).json() == []


def test_cipher_suites_are_those_that_are_set() -> None:
    key = {"ssl.keystore.location": pem("server.pem")}
    older = server_context({**key, "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"})
    newest = server_context({**key, "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"})
    assert [c["name"] for c in older.get_ciphers() if c["protocol"] == "TLSv1.2"] == ["ECDHE-RSA-AES256-GCM-SHA384"]
    assert newest.minimum_version is ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    ("tls", "words"),
    [
        ({}, "needs a certificate"),
        ({"ssl.keystore.location": "/nowhere/key.pem"}, "cannot be read"),
        ({"ssl.keystore.location": __file__}, "neither PKCS12 nor JKS nor PEM"),
        ({"ssl.keystore.location": pem("server.p12"), "ssl.keystore.password": "no"}, "ssl.keystore.password: .*wrong"),
        ({"ssl.keystore.location": pem("server.pem"), "ssl.cipher.suites": "NONSENSE"}, "OpenSSL knows none"),
        ({"ssl.keystore.location": pem("ca.pem")}, "key and certificates cannot be used"),
        ({"ssl.keystore.location": pem("server.pem"), "ssl.client.auth": "required"}, "need ssl.truststore"),
        ({"ssl.keystore.location": pem("server.pem"), "ssl.client.auth": "perhaps"}, "must be one of"),
        ({"ssl.keystore.location": pem("server.pem"), "ssl.enabled.protocols": "SSLv3"}, "Only TLSv1.2"),
    ],
)
def test_tls_settings_that_cannot_be_used_say_why(tls: Mapping[str, str], words: str) -> None:
    with pytest.raises(ConfigException, match=words):
        server_context(tls)


def test_log_levels_are_only_on_the_admin_listener_when_there_is_one() -> None:
    settings = settings_of(HTTP, {"admin.listeners": HTTP, "response.http.headers.config": "set X-A: b"})
    with worker_rest(settings) as (_, _, (main, admin)), httpx.Client() as client:
        assert client.get(f"http://127.0.0.1:{main}/admin/loggers").status_code == 404
        assert client.get(f"http://127.0.0.1:{admin}/connectors").status_code == 404
        found = client.get(f"http://127.0.0.1:{admin}/admin/loggers")
        assert found.status_code == 200
        assert "x-a" not in found.headers


def test_an_empty_list_of_admin_listeners_means_no_log_levels() -> None:
    with worker_rest(settings_of(HTTP, {"admin.listeners": ""})) as (_, _, (main,)):
        assert httpx.get(f"http://127.0.0.1:{main}/admin/loggers").status_code == 404


def test_the_advertised_listener_must_be_there() -> None:
    settings = settings_of(HTTP, {"rest.advertised.listener": "https"})
    with pytest.raises(ConfigException, match="No listener has this protocol"):
        WorkerRest(settings)

    def address(more: Mapping[str, str]) -> tuple[str, str]:
        found = settings_of("http://a:0,https://b:0", more)
        return advertised(found, listeners_of(found), [80, 443])

    assert address({}) == ("http", "a:80")
    assert address({"rest.advertised.listener": "HTTPS"}) == ("https", "b:443")
    assert address({"rest.advertised.host.name": "c", "rest.advertised.port": "1"}) == ("http", "c:1")
    with pytest.raises(ConfigException, match="Must be http or https"):
        address({"rest.advertised.listener": "ftp"})


# ------------------------------------------------------------------ extensions
def jaas(directory: Path, content: str = "amy=secret\n") -> dict[str, str]:
    """An environment that names a JAAS file that names a file of users."""
    users, login = directory / "users.properties", directory / "jaas.conf"
    users.write_text(content)
    module = "org.apache.kafka.connect.rest.basic.auth.extension.PropertyFileLoginModule"
    login.write_text(
        f'// logins\nOther {{ x required; }};\nKafkaConnect {{\n  {module} required\n  file="{users}";\n}};\n'
    )
    return {"KAFKA_OPTS": f"-Xmx64m -Djava.security.auth.login.config={login}"}


def test_basic_authentication_lets_known_users_pass_on_every_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_OPTS", jaas(tmp_path)["KAFKA_OPTS"])
    auth = "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
    settings = settings_of(HTTP, {"admin.listeners": HTTP, "rest.extension.classes": auth})
    with worker_rest(settings) as (_, _, (main, admin)), httpx.Client() as client:
        base = f"http://127.0.0.1:{main}"
        assert client.get(f"{base}/connectors", auth=("amy", "secret")).json() == []
        for answer in (
            client.get(f"{base}/"),
            client.get(f"{base}/health"),
            client.options(f"{base}/connectors"),
            client.get(f"{base}/connectors", auth=("amy", "wrong")),
            client.get(f"{base}/connectors", auth=("bob", "")),
            client.get(f"{base}/connectors", headers={"Authorization": "Basic !!!"}),
        ):
            assert (answer.status_code, answer.text) == (401, "User cannot access the resource.")
            assert answer.headers["content-type"] == "application/json"
            assert "www-authenticate" not in answer.headers
        assert client.get(f"http://127.0.0.1:{admin}/admin/loggers").status_code == 200
        internal = client.put(f"{base}/connectors/a/fence")
        assert (internal.status_code, internal.json()["message"]) == (
            400,
            "Internal request missing required signature",
        )


def test_login_files_that_cannot_be_used_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_OPTS", raising=False)
    with pytest.raises(ConfigException, match=r"name it in rest\.basic\.auth\.file, or as Java does, with KAFKA_OPTS="):
        BasicAuthExtension().configure({})
    with pytest.raises(ConfigException, match="has no user"):
        read_users(users_file(login_file(jaas(tmp_path, "# nobody\n"))))
    (tmp_path / "jaas.conf").write_text("Other { x required; };")
    with pytest.raises(ConfigException, match="no entry KafkaConnect"):
        users_file(str(tmp_path / "jaas.conf"))
    with pytest.raises(ConfigException, match="cannot be read"):
        read_users(str(tmp_path / "gone"))


@pytest.mark.parametrize("classes", [[], ["BasicAuthSecurityRestExtension"], ["tests.unit.rest.test_access.Greeter"]])
def test_a_file_of_users_in_the_workers_settings_is_enough(
    classes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KAFKA_OPTS", jaas(tmp_path)["KAFKA_OPTS"])
    users = tmp_path / "of-the-worker"
    users.write_text("bob=other\n")
    users.chmod(0o644)
    more = {"rest.extension.classes": ",".join(classes), "rest.basic.auth.file": str(users), "greeting": "hi"}
    settings = settings_of(HTTP, more)
    with worker_rest(settings) as (_, _, (main,)), httpx.Client() as client:
        url = f"http://127.0.0.1:{main}/connectors"
        assert client.get(url, auth=("bob", "other")).json() == []
        for answer in (client.get(url), client.get(url, auth=("amy", "secret"))):
            assert answer.status_code == 401
    assert f"Everybody on this machine may read {users}" in caplog.text


def test_a_file_that_its_owner_alone_may_read_is_nothing_to_warn_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    users = tmp_path / "users"
    users.write_text("bob=other\n")
    users.chmod(0o600)
    assert read_users(str(users)) == {"bob": "other"}
    assert caplog.text == ""


def test_a_setting_that_names_no_usable_file_ends_the_start(tmp_path: Path) -> None:
    with running() as setup, pytest.raises(ConfigException, match="cannot be read"):
        Extensions([], {"rest.basic.auth.file": str(tmp_path / "gone")}, HerderState(setup.herder))


def of_users(directory: Path, read_only: str = "eve") -> dict[str, str]:
    """The settings of a worker with the users amy and eve."""
    users = directory / "of-the-worker"
    users.write_text("amy=secret\neve=other\n")
    users.chmod(0o600)
    return {"rest.basic.auth.file": str(users), "rest.basic.auth.read.only.users": read_only}


def test_a_user_who_may_only_read_changes_validates_and_previews_nothing(tmp_path: Path) -> None:
    settings = settings_of(HTTP, {"admin.listeners": HTTP, **of_users(tmp_path)})
    with worker_rest(settings) as (setup, _, (main, admin)), httpx.Client() as client:
        setup.put("a")
        base, eve, amy = f"http://127.0.0.1:{main}", ("eve", "other"), ("amy", "secret")
        config = client.get(f"{base}/connectors/a/config", auth=eve).json()
        described = client.get(f"{base}/openapi.json", auth=eve).json()
        asked = 0
        for path, methods in described["paths"].items():
            address = base + path.format(name="a", plugin="FileStreamSource", task="0", logger="root", topic="t")
            for method in methods:
                answer = client.request(method, address, auth=eve, json=config)
                if method == "get":
                    assert answer.status_code not in (401, 403), (path, answer.text)
                elif not path.endswith(("/tasks", "/fence")):
                    asked += 1
                    assert (answer.status_code, answer.headers["content-type"]) == (403, "application/json"), path
                    assert answer.json()["error_code"] == 403
                    assert answer.json()["message"].startswith("User eve may only read (rest.basic.auth.read.only")
        assert asked > 10
        assert client.get(f"{base}/connectors", auth=eve).json() == ["a"]
        assert client.delete(f"{base}/connectors/a", auth=("eve", "wrong")).status_code == 401
        assert client.delete(f"{base}/connectors/a").status_code == 401
        levels = f"http://127.0.0.1:{admin}/admin/loggers/root"
        assert client.put(levels, auth=eve, json={"level": "DEBUG"}).status_code == 403
        assert client.get(levels, auth=eve).status_code == client.get(levels, auth=amy).status_code == 200
        assert client.get(levels).status_code == 401
        assert client.delete(f"{base}/connectors/a", auth=amy).status_code == 204


def test_a_user_who_may_only_read_has_to_be_a_user(tmp_path: Path) -> None:
    with running() as setup:
        with pytest.raises(ConfigException, match=r"read\.only\.users: The file .* has no such user"):
            Extensions([], of_users(tmp_path, "eve, evi"), HerderState(setup.herder))
        with pytest.raises(ConfigException, match=r"No user is asked for; set rest\.basic\.auth\.file too"):
            Extensions([], {"rest.basic.auth.read.only.users": "eve"}, HerderState(setup.herder))


def test_nobody_is_asked_by_default() -> None:
    with worker_rest(settings_of()) as (setup, _, (main,)):
        setup.put("a")
        assert httpx.delete(f"http://127.0.0.1:{main}/connectors/a").status_code == 204


class Greeter(RestExtension):
    """Adds a path, and closes another to all."""

    closed = 0

    def configure(self, configs: Mapping[str, str]) -> None:
        self.word = configs["greeting"]

    def register(self, context: RestExtensionContext) -> None:
        def greet(request: RestRequest) -> RestResponse:
            names = ",".join(context.cluster_state.connectors())
            who = request.query.get("who", ["you"])[0]
            return RestResponse(200, f"{self.word} {who}: {names} {request.body.decode()}".encode())

        def broken(request: RestRequest) -> RestResponse:
            raise ConnectException("no greeting today")

        context.add_route("POST", "/greet", greet)
        context.add_route("GET", "/broken", broken)
        context.add_filter(lambda request: RestResponse(403) if request.path == "/health" else None)

    def close(self) -> None:
        Greeter.closed += 1


def test_an_extension_adds_paths_and_knows_the_connectors() -> None:
    settings = settings_of(HTTP, {"rest.extension.classes": f"{__name__}:Greeter", "greeting": "hello"})
    before = Greeter.closed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.rest.extensions.import_class", lambda text: Greeter)
        with worker_rest(settings) as (setup, _, (port,)):
            setup.put("a")
            base = f"http://127.0.0.1:{port}"
            assert httpx.post(f"{base}/greet?who=amy", content=b"!").text == "hello amy: a !"
            assert httpx.get(f"{base}/greet").status_code == 405
            assert httpx.get(f"{base}/health").status_code == 403
            assert httpx.get(f"{base}/broken").json() == {"error_code": 500, "message": "no greeting today"}
    assert Greeter.closed == before + 1


class BrokenGuard(RestExtension):
    """Has a filter that fails."""

    def register(self, context: RestExtensionContext) -> None:
        def check(request: RestRequest) -> RestResponse | None:
            raise ValueError("the directory of users is away")

        context.add_filter(check)


def test_a_filter_that_fails_lets_nobody_pass_and_its_error_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.rest.extensions.import_class", lambda text: BrokenGuard)
        settings = settings_of(HTTP, {"rest.extension.classes": "BrokenGuard"})
        with worker_rest(settings) as (_, _, (port,)):
            answer = httpx.get(f"http://127.0.0.1:{port}/connectors")
    assert (answer.status_code, answer.json()) == (
        500,
        {"error_code": 500, "message": "the directory of users is away"},
    )
    assert "GET /connectors failed" in caplog.text


def test_an_extension_that_cannot_be_used_is_named() -> None:
    with running() as setup:
        for text, words in [("no.such:Thing", "could not be found"), ("builtins:dict", "does not extend")]:
            with pytest.raises(ConfigException, match=words):
                Extensions([text], {}, HerderState(setup.herder))
