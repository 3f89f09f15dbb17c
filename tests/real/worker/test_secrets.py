"""What others on the machine see of a worker: its log, answers, files, ports, command lines and environments."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import threading
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from testkit.processes.worker_process import WorkerProcess, children

from penstock.broker import EmbeddedBroker

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]

MARK = f"hush{uuid.uuid4().hex[:12]}"
#: A password in an address, which is no setting for passwords: answers show it where they show the configuration.
IN_ADDRESS = MARK.replace("hush", "whisper")
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required username=u password="
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "max.block.ms": "2000"}
AVRO = "io.confluent.connect.avro.AvroConverter"
KEEPER = '''
from penstock.api import SourceConnector, SourceTask
from penstock.config import ConfigDef, ConfigType
from penstock.errors import ConnectException

class Keeper(SourceConnector):
    """Has a password, and fails where it is told to."""

    def version(self): return "1"
    def start(self, props): self.props = props
    def stop(self): pass
    def task_class(self): return KeeperTask
    def task_configs(self, max_tasks): return [self.props]
    def config(self):
        return (ConfigDef().define("vault.password", ConfigType.PASSWORD)
            .define("fails", ConfigType.STRING)
            .define("count", ConfigType.INT, default=1))

class KeeperTask(SourceTask):
    def version(self): return "1"
    def start(self, props):
        self.fails = props["fails"]
        if self.fails == "start":
            raise ConnectException("no way in")
    def poll(self):
        if self.fails == "poll":
            raise ValueError("lost the way")
        return None
    def stop(self): pass
'''


class Api:
    """Asks a worker as a user, and keeps all that it answers."""

    def __init__(self, port: int) -> None:
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", auth=("amy", f"{MARK}-user"), timeout=60)
        self.answers: list[str] = []

    def ask(self, method: str, path: str, body: object = None) -> httpx.Response:
        answer = self.client.request(method, path, json=body)
        self.answers.append(f"{method} {path} {answer.status_code} {answer.headers} {answer.text}")
        return answer

    def up(self) -> bool:
        try:
            return self.client.get("/connectors").status_code == 200
        except httpx.TransportError:
            return False


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory, broker: EmbeddedBroker) -> Iterator[WorkerProcess]:
    """A running worker with a secret in each setting that takes one, and an umask that lets everybody read."""
    tmp_path = tmp_path_factory.mktemp("secrets")
    umask = os.umask(0o022)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "keeper_of_secrets.py").write_text(KEEPER)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "secrets.properties").write_text(f"key={MARK}-provided\n")
    (tmp_path / "users").write_text(f"amy={MARK}-user\n")
    (tmp_path / "users").chmod(0o600)
    own = {
        "rest.basic.auth.file": str(tmp_path / "users"),
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "ssl.key.password": f"{MARK}-worker-key",
        "ssl.keystore.password": f"{MARK}-worker-store",
        "producer.ssl.truststore.password": f"{MARK}-producer",
        "consumer.ssl.truststore.password": "${file:" + str(tmp_path / "secrets.properties") + ":key}",
        "admin.ssl.truststore.password": f"{MARK}-admin",
        "spark.hadoop.fs.s3a.secret.key": f"{MARK}-spark",
        "spark.hadoop.my.thing": "${file:" + str(tmp_path / "secrets.properties") + ":key}",
    }
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    made = WorkerProcess(tmp_path, broker.bootstrap_servers, own)
    made.spark_on_demand = False
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path / "lib"))
        patch.setenv("TMPDIR", str(tmp_path / "tmp"))
        made.start()
    yield made
    made.close()
    os.umask(umask)


@pytest.fixture
def api(worker: WorkerProcess) -> Iterator[Api]:
    """Asks the worker, which is there."""
    made = Api(worker.port)
    worker.wait(made.up, "REST")
    yield made
    made.client.close()


def connectors(directory: Path) -> Mapping[str, Mapping[str, str]]:
    """Connectors by name, each with a secret, most of which fail in a way of their own."""
    provided = "${file:" + str(directory / "secrets.properties") + ":key}"
    file = {"connector.class": "FileStreamSource", "file": str(directory / "in.txt"), "topic": f"t-{MARK[4:]}"}
    keeper = {"connector.class": "keeper_of_secrets.Keeper", "vault.password": f"{MARK}-plugin"}
    sasl = {f"producer.override.{name}": value for name, value in SASL.items()}
    jaas = "producer.override.sasl.jaas.config"
    avro = {"value.converter": AVRO}
    url, info = "value.converter.schema.registry.url", "value.converter.basic.auth.user.info"
    user_info = {"value.converter.basic.auth.credentials.source": "USER_INFO"}
    return {
        "runs": {**keeper, "fails": "never"},
        "fails-at-start": {**keeper, "fails": "start"},
        "fails-at-poll": {**keeper, "fails": "poll"},
        "fails-with-provided": {**keeper, "vault.password": provided, "fails": "poll"},
        "wrong-number": {**keeper, "fails": "never", "count": provided},
        "unknown-setting": {**keeper, "fails": "never", "vault.pasword": provided},
        "wrong-account": {**file, **sasl, jaas: f'{JAAS}"{MARK}-jaas";'},
        "provided-account": {**file, **sasl, jaas: f'{JAAS}"{provided}";'},
        "no-jaas": {**file, **sasl, jaas: f"{MARK}-jaas and nothing else"},
        "cut-jaas": {**file, **sasl, jaas: f'{JAAS}"{MARK}-jaas'},
        "odd-jaas": {**file, **sasl, jaas: f'my.Module required password="{MARK}-jaas";'},
        "wrong-key": {
            **file,
            "producer.override.security.protocol": "SSL",
            "producer.override.ssl.keystore.location": str(directory / "in.txt"),
            "producer.override.ssl.keystore.password": f"{MARK}-store",
            "producer.override.ssl.key.password": f"{MARK}-key",
        },
        "wrong-pem": {
            **file,
            "producer.override.security.protocol": "SSL",
            "producer.override.ssl.keystore.type": "PEM",
            "producer.override.ssl.keystore.key": f"-----BEGIN PRIVATE KEY-----\n{MARK}\n-----END PRIVATE KEY-----",
            "producer.override.ssl.keystore.certificate.chain": "none",
        },
        "registry-gone": {**file, **avro, **user_info, url: "http://127.0.0.1:9", info: f"me:{MARK}-registry"},
        "registry-in-address": {**file, **avro, url: f"http://me:{IN_ADDRESS}-address@127.0.0.1:9"},
        "registry-bad-address": {**file, **avro, url: f"ftp://me:{IN_ADDRESS}-address@127.0.0.1:x"},
        "registry-odd-info": {**file, **avro, **user_info, url: "http://127.0.0.1:9", info: f"{MARK}-registry"},
        "registry-provided": {**file, **avro, **user_info, url: "http://127.0.0.1:9", info: f"me:{provided}"},
    }


def places(worker: WorkerProcess) -> dict[str, str]:
    """Command lines and environments of a worker and all processes below it."""
    found, left = {}, [worker.pid]
    while left:
        pid = left.pop()
        left += children(pid)
        for name in ("cmdline", "environ"):
            try:
                text = Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace").replace("\0", " ")
            except OSError:
                continue
            found[f"{name} of {text[:60] if name == 'cmdline' else pid}"] = text
    return found


def listening(pid: int) -> dict[int, str]:
    """The TCP ports that a process listens on, with the address in hexadecimal."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(entry)))
    tables = "".join(Path(f"/proc/{pid}/net/{kind}").read_text() for kind in ("tcp", "tcp6"))
    rows = [line.split() for line in tables.splitlines()]
    listens = [row[1].split(":") for row in rows if row[3] == "0A" and row[9] in inodes]
    return {int(port, 16): address for address, port in listens}


def test_sparks_ports_are_on_this_machine_alone_and_answer_nobody_else(worker: WorkerProcess, api: Api) -> None:
    config = {"connector.class": "FileStreamSource", "file": str(worker.directory / "in.txt"), "topic": f"p-{MARK[4:]}"}
    assert api.ask("PUT", "/connectors/flows/config", config).status_code == 201
    pid = found_jvm(worker)
    worker.wait(lambda: "position" in api.client.get("/connectors/flows/offsets").text, "lines are sent", 90)
    ports = listening(pid)
    assert set(ports.values()) <= {"0100007F", "0000000000000000FFFF00000100007F"}, ports
    answers = []
    for port in ports:
        # The first is Py4J's way to call a static method, then to shut the JVM down.
        for text in (b"c\nz:java.lang.System\nexit\ni7\ne\n", b"s\n", b"A\nwrong\n", b"GET / HTTP/1.0\r\n\r\n"):
            # Some ports hang up before all is sent.
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as other:
                other.sendall(text)
                other.shutdown(socket.SHUT_WR)
                answers.append(other.recv(4096))
    assert not [answer for answer in answers if answer.startswith(b"!y")], answers
    assert any(b"Authentication" in answer for answer in answers), answers
    assert worker.jvm() == pid


def found_jvm(worker: WorkerProcess) -> int:
    """The worker's JVM, once it is there."""
    worker.wait(lambda: worker.jvm() is not None, "the JVM", 90)
    pid = worker.jvm()
    assert pid is not None
    return pid


def test_files_are_readable_by_the_workers_user_alone(worker: WorkerProcess) -> None:
    found_jvm(worker)
    made = [*(worker.directory / "tmp").iterdir(), *worker.directory.glob("offsets*")]
    modes = {str(path): oct(path.stat().st_mode & 0o777) for path in made}
    assert {path for path, mode in modes.items() if not mode.endswith("00")} == set(), modes
    assert {"offsets", "offsets.lock"} <= {path.name for path in made}
    assert any(path.is_dir() for path in made), "Spark's directory"


def test_no_secret_is_seen_wherever_it_was_given_and_whatever_fails(worker: WorkerProcess, api: Api) -> None:
    assert api.ask("PUT", "/admin/loggers/root", {"level": "DEBUG"}).status_code == 200
    created = {}
    for name, config in connectors(worker.directory).items():
        plugin = config["connector.class"]
        api.ask("PUT", f"/connector-plugins/{plugin}/config/validate", {"name": name, **config})
        if not name.startswith("registry-") or name == "registry-gone":
            api.ask("POST", f"/connector-plugins/{plugin}/preview", {"config": config, "limits": {"seconds": 1}})
        created[name] = api.ask("PUT", f"/connectors/{name}/config", config).status_code
    assert created["runs"] == created["wrong-account"] == created["registry-gone"] == 201, (created, api.answers[1:4])

    def failed() -> set[str]:
        found = api.client.get("/connectors?expand=status").json()
        return {name for name, one in found.items() for task in one["status"]["tasks"] if task["state"] == "FAILED"}

    expected = {"fails-at-start", "fails-at-poll", "fails-with-provided", "registry-gone"}
    worker.wait(lambda: expected <= failed(), f"{expected} fail", 90)
    found_jvm(worker)
    pause = threading.Event()
    seen = places(worker)
    for _ in range(20):
        seen |= places(worker)
        pause.wait(0.1)
    for name, status in created.items():
        if status == 201:
            for path in ("", "/config", "/status", "/tasks", "/tasks-config", "/tasks/0/config", "/explain", "/topics"):
                api.ask("GET", f"/connectors/{name}{path}")
            api.ask("POST", f"/connectors/{name}/restart?includeTasks=true")
    paths = ("/", "/health", "/metrics", "/connectors?expand=info&expand=status", "/openapi.json", "/admin/loggers")
    for path in paths:
        api.ask("GET", path)
    api.client.get("/connectors", auth=("amy", f"{MARK}-wrong"))
    assert worker.end() == 0

    seen |= {"log": worker.text()} | {f"answer to {text.split(' {')[0]}": text for text in api.answers}
    told = re.compile(r"(?:GET|PUT|POST) (?!/connectors/[^/]+/(?:status|restart)|/metrics|/health)")
    for place, text in list(seen.items()):
        if not told.match(place.removeprefix("answer to ")):
            seen[place] = text.replace(IN_ADDRESS, MARK)
    leaks = {place: shown(text) for place, text in seen.items() if MARK in text}
    assert leaks == {}, json.dumps(leaks, indent=1)
    assert any("java" in place for place in seen)


def shown(text: str) -> list[str]:
    """What stands around the first secrets of a text."""
    return [text[max(0, one.start() - 120) : one.end() + 60] for one in re.finditer(MARK, text)][:3]
