"""Asks the REST API what nobody would: ``python -m differential.rest_fuzz --minutes 10 --seed 7``.

Requests have the structure of real ones, and parts that no client sends: long, deep, wrong, foreign. No answer may be
500, and neither threads nor memory may grow. Without ``--url`` a worker is started in this process whose tasks are
doubles; its validation is the real one. What fails is printed with the seed of the request, which ``--only`` repeats.

Thread: the main thread; the worker has its own.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import logging
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
from testkit.connectors.probes import BOARD
from testkit.doubles.control_plane import SINK, SOURCE, running

from penstock.plugins import Plugins
from penstock.rest.app import build_app
from penstock.rest.server import Listener, RestServer, Served, open_listeners
from penstock.rest.services import Services
from penstock.validation.plugin_checks import PluginCatalog

NAMES: Final = ("a", "b", "s", "f", "none", "a/b", "é", "%", "..", " a ", "\x00", "x" * 3_000, "a?b", "#")
CLASSES: Final = (
    *(SOURCE, SINK, "FileStreamSource", "FileStreamSink", "DirectorySource", "this:x", "this.x", "pyspark.shell.X"),
    *(
        "",
        " ",
        "x" * 5_000,
        "a.b.C",
        "a:b:c",
        "penstock.cli.worker.worker:Worker",
        "é.é",
        "builtins.int",
        "::",
        "..",
        "FileStreamSourc",
    ),
)
SETTINGS: Final = (
    *(
        "name",
        "topic",
        "topics",
        "topics.regex",
        "file",
        "tasks.max",
        "key.converter",
        "value.converter",
        "header.converter",
    ),
    *(
        "transforms",
        "transforms.t.type",
        "transforms.t.field",
        "transforms.t.predicate",
        "predicates",
        "predicates.p.type",
    ),
    *("transforms.t.regex", "transforms.t.replacement", "transforms.t.spec", "transforms.t.negate", "errors.tolerance"),
    *("errors.retry.timeout", "errors.deadletterqueue.topic.name", "topic.creation.groups", "topic.creation.g.include"),
    *("topic.creation.default.partitions", "topic.creation.default.replication.factor", "exactly.once.support"),
    *(
        "producer.override.acks",
        "producer.override.max.in.flight.requests.per.connection",
        "consumer.override.group.id",
    ),
    *(
        "consumer.override.auto.offset.reset",
        "value.converter.schemas.enable",
        "task.isolation",
        "offsets.storage.topic",
    ),
    *("transaction.boundary", "transaction.boundary.interval.ms", "config.action.reload", "directory", "batch.size"),
)
STEPS: Final = (
    "HoistField$Value",
    "RegexRouter",
    "Cast$Value",
    "Filter",
    "ReplaceField$Key",
    "TimestampRouter",
    "Nope",
)
TEXTS: Final = (
    *(
        "",
        " ",
        "t",
        "a,b",
        ",,,",
        "true",
        "TRUE",
        "1",
        "-1",
        "0",
        "99999999999999999999",
        "9" * 5_000,
        "1e3",
        "NaN",
        "0x10",
    ),
    *(
        "x" * 20_000,
        "a," * 5_000,
        "${env:SECRET}",
        "${env:NONE}",
        "${" * 2_000,
        "${x:y:z}",
        "(a+)+b",
        "[",
        "(?<n>a)\\k<n>",
    ),
    *(
        "\u0000",
        "\ud83d\ude00",
        "é",
        "\u2028",
        "a=b",
        "../../etc/passwd",
        "/dev/zero",
        "all",
        "none",
        "\\",
        "a{1000}" * 50,
    ),
    *(
        "org.apache.kafka.connect.json.JsonConverter",
        "Json",
        "String",
        "exactly",
        "required",
        "poll",
        "interval",
        "process",
    ),
)
ODD: Final[tuple[Any, ...]] = (None, True, 0, -1, 2**63, 2**70, 1.5, 1e300, [], {}, [1], {"a": {"b": []}})
HEADERS: Final[tuple[dict[str, str], ...]] = (
    *({}, {}, {}, {}, {"accept": "text/html"}, {"accept": "*/*;q=0.1"}, {"origin": "http://evil.example"}),
    *(
        {"content-type": "text/plain"},
        {"content-type": ""},
        {"expect": "100-continue"},
        {"x-forwarded-for": "a" * 4_000},
    ),
    *(
        {"authorization": "Basic " + "A" * 4_000},
        {"upgrade": "websocket", "connection": "upgrade"},
        {"cookie": "a=b; " * 500},
    ),
    {"x-connect-authorization": "AAAA", "x-connect-request-signature-algorithm": "HmacSHA256"},
)
QUERIES: Final = (
    *(
        "",
        "",
        "",
        "?expand=info",
        "?expand=status&expand=info",
        "?includeTasks=true",
        "?onlyFailed=true&includeTasks=x",
    ),
    *(
        "?dry_run=true",
        "?timestamp=5",
        f"?timestamp={'9' * 5_000}",
        "?timestamp=2020-01-01",
        "?timestamp=%ff",
        "?forward=true",
    ),
    *("?forward=false", "?connectorsOnly=false", "?%00=%00", "?" + "a=b&" * 300, "?scope=cluster", "?scope=\u00e9"),
)


@dataclass
class Asked:
    """One request.

    Attributes:
        body: Its bytes; None for none.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: bytes | None


class Requests:
    """Random requests.

    Args:
        dice: Where they come from.
    """

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def next(self) -> Asked:
        """Another one."""
        dice = self._dice
        method, path, body = self._operation()
        if dice.random() < 0.05:
            method = dice.choice(("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "FOO"))
        if dice.random() < 0.05:
            path = self._odd_path(path)
        raw = None if body is None else self._bytes(body)
        headers = dict(dice.choice(HEADERS))
        if raw is not None and "content-type" not in headers:
            headers["content-type"] = "application/json"
        return Asked(method, path + dice.choice(QUERIES), headers, raw)

    def _operation(self) -> tuple[str, str, Any]:
        dice = self._dice
        name = quote(dice.choice(NAMES), safe="")
        plugin = quote(dice.choice(CLASSES)[:3_000], safe="")
        task = dice.choice(("0", "1", "-1", "99", "x", "2147483648", "9" * 4_000, "%ff"))
        c = f"/connectors/{name}"
        kinds: list[Callable[[], tuple[str, str, Any]]] = [
            lambda: (
                "GET",
                dice.choice(("/", "/health", "/metrics", "/connectors", "/cluster", "/openapi.json")),
                None,
            ),
            lambda: ("GET", dice.choice(("/connector-plugins", f"/connector-plugins/{plugin}/config")), None),
            lambda: ("POST", "/connectors", self._creation()),
            lambda: ("PUT", f"{c}/config", self._config()),
            lambda: ("PATCH", f"{c}/config", self._config()),
            lambda: (
                "GET",
                c + dice.choice(("", "/config", "/status", "/tasks", "/topics", "/offsets", "/explain")),
                None,
            ),
            lambda: ("GET", f"{c}/tasks/{task}/status", None),
            lambda: ("POST", f"{c}/tasks/{task}/restart", None),
            lambda: ("POST", f"{c}/restart", None),
            lambda: ("PUT", c + dice.choice(("/pause", "/resume", "/stop", "/topics/reset", "/fence")), None),
            lambda: ("PATCH", f"{c}/offsets", self._offsets()),
            lambda: ("DELETE", c + dice.choice(("", "/offsets")), None),
            lambda: ("PUT", f"/connector-plugins/{plugin}/config/validate", self._config()),
            lambda: ("PUT", f"/connector-plugins/{plugin}/config/validate", self._config()),
            lambda: ("POST", f"/connector-plugins/{plugin}/preview", self._preview()),
            lambda: ("POST", f"{c}/tasks", self._value()),
            lambda: (dice.choice(("GET", "PUT")), f"/admin/loggers/{name}", {"level": self._value()}),
        ]
        return dice.choice(kinds)()

    def _creation(self) -> Any:
        found: dict[str, Any] = {"name": self._dice.choice(NAMES), "config": self._config()}
        if self._dice.random() < 0.2:
            found[self._dice.choice(("initial_state", "x", "name", "config"))] = self._value()
        return found

    def _config(self) -> Any:
        dice = self._dice
        if dice.random() < 0.03:
            return self._value()
        config: dict[str, Any] = {"connector.class": dice.choice(CLASSES)}
        if dice.random() < 0.7:
            config["connector.class"] = dice.choice((SOURCE, SINK, "FileStreamSource", "FileStreamSink"))
            config |= {"topics" if "Sink" in config["connector.class"] else "topic": "t", "tasks.max": "1"}
        if dice.random() < 0.4:
            config |= {
                "transforms": "t",
                "transforms.t.type": f"org.apache.kafka.connect.transforms.{dice.choice(STEPS)}",
            }
        for _ in range(dice.randrange(4)):
            name = dice.choice(SETTINGS) if dice.random() < 0.8 else dice.choice(TEXTS)
            config[name] = dice.choice(TEXTS) if dice.random() < 0.8 else self._value()
        return config

    def _offsets(self) -> Any:
        dice = self._dice
        rows: list[dict[str, Any]] = []
        for _ in range(dice.randrange(4)):
            partition = {dice.choice(("kafka_topic", "filename", "x")): self._value(), "kafka_partition": self._value()}
            offset = {dice.choice(("kafka_offset", "position", "timestamp")): self._value()}
            rows.append({"partition": dice.choice((partition, None, [])), "offset": dice.choice((offset, None, 1))})
        return dice.choice(({"offsets": rows}, {"offsets": rows}, {"timestamp": self._value()}, self._value()))

    def _preview(self) -> Any:
        dice = self._dice
        rows = [
            {dice.choice(("topic", "key", "value", "headers", "partition", "timestamp")): self._value()}
            for _ in range(3)
        ]
        limits = {dice.choice(("records", "seconds", "bytes", "x")): self._value()}
        return {
            "config": self._config(),
            "records": dice.choice((rows, None, [])),
            "limits": dice.choice((limits, None)),
        }

    def _value(self) -> Any:
        dice = self._dice
        return dice.choice((dice.choice(ODD), dice.choice(TEXTS), dice.randrange(-5, 2**40)))

    def _odd_path(self, path: str) -> str:
        return self._dice.choice(
            (f"{path}/", f"/{path}", f"{path}/x", path.upper(), f"{path}%00", f"{path}%ff", f"{path}//")
        )

    def _bytes(self, body: Any) -> bytes:
        dice = self._dice
        raw = json.dumps(body, ensure_ascii=dice.random() < 0.5).encode("utf-8", "surrogatepass")
        chance = dice.random()
        if chance < 0.02:
            return raw[: dice.randrange(len(raw) + 1)]
        if chance < 0.04:
            return dice.randbytes(dice.randrange(200))
        if chance < 0.05:
            return b'{"a":' * 2_000
        if chance < 0.06:
            return raw.replace(b"1", b'"\\ud800"', 1)
        return raw


@dataclass
class Found:
    """What came of all requests.

    Attributes:
        statuses: How often each status code came.
        failures: What must not be, as texts.
        growth: Threads and megabytes between the first quarter and the end.
    """

    statuses: Counter[int] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    growth: tuple[int, float] = (0, 0.0)


#: So much more at the end than after a quarter is no leak.
MOST_THREADS: Final = 12
MOST_MEGABYTES: Final = 64.0


def fuzz(
    url: str,
    seed: int,
    seconds: float,
    *,
    most: int | None = None,
    only: int | None = None,
    forget: Callable[[], None] = lambda: None,
) -> Found:
    """Asks for so long; each request has a seed of its own.

    Args:
        url: The worker's.
        seed: Of all requests.
        seconds: How long.
        most: Ends after so many requests, if that is sooner.
        only: The seed of the one request to make.
        forget: Called before memory is looked at.
    """
    found = Found()
    begun, first = time.monotonic(), None
    before = number = seed * 1_000_000
    with httpx.Client(base_url=url, timeout=60) as client:
        while time.monotonic() - begun < seconds:
            number = only if only is not None else number + 1
            asked = Requests(random.Random(number)).next()
            try:
                answer = client.request(asked.method, asked.path, headers=asked.headers, content=asked.body)
            except (httpx.InvalidURL, httpx.LocalProtocolError, UnicodeEncodeError):
                continue
            except httpx.HTTPError as error:
                found.failures.append(f"{number}: {asked.method} {asked.path[:100]}: {type(error).__name__}: {error}")
            else:
                found.statuses[answer.status_code] += 1
                if answer.status_code == 500:
                    found.failures.append(f"{number}: {asked.method} {asked.path[:100]}: 500 {answer.text[:300]}")
            if only is not None or number - before == most:
                break
            gone = max((time.monotonic() - begun) / seconds, (number - before) / most if most else 0)
            if first is None and gone > 0.25:
                first = _size(client, forget)
        last = _size(client, forget)
    if first is not None:
        found.growth = (last[0] - first[0], last[1] - first[1])
        if found.growth[0] > MOST_THREADS or found.growth[1] > MOST_MEGABYTES:
            found.failures.append(f"{seed}: {found.growth[0]} threads and {found.growth[1]:.0f} MB more than before")
    return found


def _size(client: httpx.Client, forget: Callable[[], None]) -> tuple[int, float]:
    """Threads and megabytes of this process without any connector: each of those has threads of its own."""
    for name in client.get("/connectors").json():
        client.delete(f"/connectors/{quote(name, safe='')}")
    forget()
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return threading.active_count(), pages * 4096 / 1e6


@contextlib.contextmanager
def own_worker() -> Iterator[tuple[str, Callable[[], None]]]:
    """A worker of this process whose tasks are doubles: its address, and what has the doubles forget their past."""
    with running(plugins=Plugins()) as setup:
        setup.validator.strict = True

        def forget() -> None:
            # Doubles keep all connectors and tasks that there ever were, for tests to look at.
            setup.tasks.clear()
            setup.previews.clear()
            BOARD.clear()

        app = build_app(Services(setup.herder, "4.3.0", "unknown", PluginCatalog(Plugins()), metrics=setup.metrics))
        server = RestServer([Served(app, open_listeners([Listener("127.0.0.1", 0)]))], patience_s=0.1)
        server.start()
        try:
            yield f"http://127.0.0.1:{server.ports[0]}", forget
        finally:
            server.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. Returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m differential.rest_fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000))
    parser.add_argument("--only", type=int, help="the seed of the one request to make")
    parser.add_argument("--url", help="of a worker that runs; without it one is started here")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.CRITICAL)
    with contextlib.ExitStack() as stack:
        url, forget = (options.url, lambda: None) if options.url else stack.enter_context(own_worker())
        found = fuzz(url, options.seed, options.minutes * 60, only=options.only, forget=forget)
    for failure in found.failures[:50]:
        print(failure)
    total = sum(found.statuses.values())
    threads, megabytes = found.growth
    print(f"seed {options.seed}: {total} requests, {dict(sorted(found.statuses.items()))}")
    print(f"{len(found.failures)} failures; {threads:+d} threads, {megabytes:+.0f} MB")
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(main())
