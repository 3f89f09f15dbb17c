"""Requests that try to run code, to stop a worker, or to see a secret: one table for Java's worker and for ours.

Main names: ``CASES``, ``Case``, ``prepare`` and ``ask``. Thread: any; ``ask`` blocks for the answer.
"""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

#: What no answer of ours may hold.
MARK: Final = "hush-93f0c1d2"
#: The longest name of a connector: 10,000 bytes of UTF-8. Java's worker cannot answer that it has made it.
LONGEST: Final = "é" * 5_000
#: The connector that is there before the first case, with secrets.
KEPT: Final = "kept"
SOURCE: Final = {"connector.class": "FileStreamSource", "topic": "hostile", "file": "/nowhere/in", "tasks.max": "1"}
SINK: Final = {"connector.class": "FileStreamSink", "topics": "hostile", "file": "/nowhere/out", "tasks.max": "1"}
_KEPT_CONFIG: Final = {
    **SOURCE,
    "admin.override.sasl.password": MARK,
    "consumer.override.ssl.key.password": MARK,
    "transforms.t.secret": MARK,
    "value.converter.basic.auth.user.info": f"me:{MARK}",
}
_TIMEOUT_S: Final = 95.0
_SHOWN: Final = 300
#: Rows that several cases are about.
_PASSWORDS: Final = "passwords in REST answers"
_WRONG: Final[Mapping[str, Any]] = {"status": 400, "row": "wrong requests"}
_PATHS: Final[Mapping[str, Any]] = {"status": 404, "row": "a path with a control character"}
_REPEATED: Final = re.compile(r"(.{1,3}?)\1{20,}")
_VALIDATE: Final = "/connector-plugins/FileStreamSource/config/validate"


@dataclass(frozen=True)
class Case:
    """One request.

    Attributes:
        name: What it tries.
        body: Its content as JSON; bytes are sent as they are, None sends none.
        user: Who asks: ``admin``, ``reader`` (may only read) or empty for a request without a user.
        java: True if the request means something to Java's worker.
        status: Our status where it is not Java's, and for requests that are ours only.
        row: The first cell of the row in ``docs/compatibility.md`` that tells the difference from Java.
        says: A text that our answer has.
    """

    name: str
    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    user: str = "admin"
    java: bool = True
    status: int | None = None
    row: str = ""
    says: str = ""


@dataclass(frozen=True)
class Answer:
    """What came of a request.

    Attributes:
        status: 0 where the worker has ended the connection without an answer, or with one that cannot be read.
        text: The body as text.
    """

    status: int
    text: str

    @property
    def message(self) -> str:
        """The message of an error, or the errors of a validation; shortened."""
        try:
            body = json.loads(self.text)
        except ValueError:
            return shortened(self.text)
        if not isinstance(body, dict):
            return ""
        errors = [
            f"{one['value']['name']}: {text}" for one in body.get("configs", ()) for text in one["value"]["errors"]
        ]
        return shortened("; ".join(errors) if "configs" in body else str(body.get("message", "")))

    @property
    def shows(self) -> bool:
        """True if it has the secret."""
        return MARK in self.text

    @property
    def wrong(self) -> list[str]:
        """The settings that a validation has found errors of."""
        try:
            found = json.loads(self.text)["configs"]
        except (ValueError, KeyError, TypeError):
            return []
        return sorted({shortened(one["value"]["name"]) for one in found if one["value"]["errors"]})


def shortened(text: str) -> str:
    """A text without its repetitions, up to some hundred characters."""
    return _REPEATED.sub(r"\1\1\1...", text)[:_SHOWN]


def ask(port: int, case: Case, users: Mapping[str, str] | None = None) -> Answer:
    """Sends a request just as it is.

    Args:
        port: Of a worker of this machine.
        case: The request.
        users: The header ``Authorization`` of each user; None where nobody is asked for.
    """
    headers = dict(case.headers)
    body = case.body
    if body is not None:
        headers.setdefault("Content-Type", "application/json")
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
    if users is not None and case.user:
        headers["Authorization"] = users[case.user]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        connection.request(case.method, case.path, body, headers)
        answer = connection.getresponse()
        return Answer(answer.status, answer.read().decode(errors="replace"))
    except (ConnectionError, http.client.HTTPException) as error:
        return Answer(0, type(error).__name__)
    finally:
        connection.close()


def prepare(port: int, users: Mapping[str, str] | None = None) -> Answer:
    """Creates the connector that has secrets, and deletes what a case has left behind. Returns the last answer."""
    listed = ask(port, Case("list", "GET", "/connectors"), users)
    names = json.loads(listed.text) if listed.status == 200 else []
    last = listed
    for name in names:
        if name != KEPT:
            last = ask(port, Case("delete", "DELETE", f"/connectors/{quote(name, safe='')}"), users)
    if KEPT not in names:
        last = ask(port, Case("create", "POST", "/connectors", {"name": KEPT, "config": _KEPT_CONFIG}), users)
    return last


def _client_settings() -> Iterator[Case]:
    row = "client settings that run or load something"
    loading = {
        "plugin.library.paths": "/nowhere/evil.so",
        "ssl.engine.location": "/nowhere/evil.so",
        "ssl.engine.factory.class": "java.lang.Runtime",
        "ssl.providers": "default,../../nowhere/evil",
        "interceptor.classes": "java.lang.Runtime",
        "metric.reporters": "java.lang.Runtime",
        "sasl.kerberos.kinit.cmd": "touch /nowhere/ran",
        "sasl.oauthbearer.assertion.file": "/etc/shadow",
        "security.providers": "java.lang.Runtime",
    }
    for name, text in loading.items():
        for kind in ("producer", "consumer", "admin"):
            config = {**SOURCE, f"{kind}.override.{name}": text}
            # Who needs no consumer may say what it likes of its interceptors, and Kafka's reporters change nothing.
            refused = name != "metric.reporters" and (name != "interceptor.classes" or kind == "producer")
            differs: dict[str, Any] = {"status": 400, "row": row} if refused else {}
            if refused and name != "interceptor.classes":
                differs["says"] = "whatever the policy"
            yield Case(f"{kind} {name} created", "POST", "/connectors", {"name": "c", "config": config}, **differs)
            if kind == "producer":
                yield Case(
                    *(f"{kind} {name} validated", "PUT", _VALIDATE, {"name": "c", **config}),
                    **({**differs, "status": None} if refused else {}),
                )
                preview = "/connector-plugins/FileStreamSource/preview"
                if refused:
                    asked = {"config": config}
                    yield Case(f"{kind} {name} in a preview", "POST", preview, asked, java=False, status=400)
                change = {f"{kind}.override.{name}": text}
                differs = differs or {"row": _PASSWORDS}
                yield Case(f"{kind} {name} patched", "PATCH", f"/connectors/{KEPT}/config", change, **differs)


def _sql() -> Iterator[Case]:
    attacks = {
        "a file": "(select first(value) from text.`/etc/hostname`)",
        "a file of secrets": "(select first(_c0) from csv.`/etc/passwd`)",
        "a table": "exists(from t)",
        "reflection": "reflect('java.lang.System', 'exit', 0)",
        "java_method": "java_method('java.lang.System', 'getenv', 'HOME')",
        "try_reflect": "try_reflect('java.lang.System', 'exit', 0)",
        "a name in a text": "identifier('re' || 'flect')('java.lang.System', 'exit', 0)",
        "the environment": "'${env:HOME}'",
        "the account": "current_user()",
        "very much": "size(sequence(1, 2000000000, 1))",
        "a schema's file": "from_xml(a, 'b int', map('rowValidationXSDPath', '/etc/shadow'))",
    }
    sink = {**SINK, "value.converter": "org.apache.kafka.connect.json.JsonConverter", "transforms": "s",
            "value.converter.schemas.enable": "false", "transforms.s.type": "Sql"}  # fmt: skip
    for what, text in attacks.items():
        config = {**sink, "transforms.s.select": f"{text} as x"}
        records = [{"topic": "t", "value": {"a": "1"}}]
        plugin = "/connector-plugins/FileStreamSink"
        ours: dict[str, Any] = {"java": False, "status": 400}
        yield Case(f"Sql with {what} created", "POST", "/connectors", {"name": "c", "config": config}, **ours)
        yield Case(f"Sql with {what} in a preview", "POST", f"{plugin}/preview",
                   {"config": config, "records": records}, **ours)  # fmt: skip
        yield Case(f"Sql with {what} validated", "PUT", f"{plugin}/config/validate",
                   {"name": "c", **config}, java=False, status=200, says="transforms.s.select")  # fmt: skip


def _long() -> Iterator[Case]:
    def created(what: str, more: Mapping[str, str], **differs: Any) -> Iterator[Case]:
        config = {**SOURCE, **more}
        yield Case(f"{what} created", "POST", "/connectors", {"name": "c", "config": config}, **differs)
        # A validation answers 200 whatever it finds, but for a class of the connector that is not there.
        if "connector.class" not in more:
            yield Case(f"{what} validated", "PUT", _VALIDATE, {"name": "c", **config}, **differs)

    for size in (10_000, 100_000):
        yield from created(f"a transform's class of {size}", {"transforms": "t", "transforms.t.type": "x" * size})
        yield from created(f"a predicate's class of {size}", {"predicates": "p", "predicates.p.type": "x." * size})
        yield from created(f"a converter's class of {size}", {"value.converter": "x" * size})
        yield from created(f"a connector's class of {size}", {"connector.class": "x" * size})
        differs = _WRONG if size > 50_000 else {}
        yield from created(f"a setting's name of {size}", {"x" * size: "1"}, **differs)
        yield from created(f"an override's name of {size}", {f"producer.override.{'x' * size}": "1"}, **differs)
        yield from created(f"a number of {size}", {"tasks.max": "9" * size})
    # Java's time grows with the square of these: 40,000 take 70 s.
    yield from created("4,000 transforms without a class", {"transforms": ",".join(f"n{n}" for n in range(4_000))})
    yield from created("one transform 40,000 times", {"transforms": ",".join(["n"] * 40_000)})
    topics = {**SINK, "topics": ",".join(f"n{n}" for n in range(40_000)) + ",n1"}
    yield Case("40,000 topics and one again", "PUT", _VALIDATE.replace("Source", "Sink"), {"name": "c", **topics})
    yield Case("a class of 100,000 asked for", "GET", f"/connector-plugins/{'x' * 7_000}/config")
    yield Case("many parameters", "GET", "/connectors?" + "&expand=info" * 300, row=_PASSWORDS)
    for what, raw in {"objects": b'{"a":' * 50_000, "lists": b"[" * 50_000}.items():
        yield Case(f"50,000 {what} in each other", "POST", "/connectors", raw, **_WRONG)
    number = b'{"tasks.max":' + b"1" * 5_000 + b"}"
    yield Case("a number of 5,000 digits", "PUT", f"/connectors/{KEPT}/config", number, **_WRONG)


def _imports() -> Iterator[Case]:
    for text in ("this:x", "this.Zen", "antigravity.Comic", "pyspark.shell.X", "planted.Plugin", "java.lang.System"):
        plugin = f"/connector-plugins/{quote(text, safe='')}"
        config = {**SOURCE, "connector.class": text}
        # A class that there is, Java makes, and finds that it is no plugin.
        made: dict[str, Any] = {"status": 404, "row": "names of classes in requests"}
        made = made if text == "java.lang.System" else {}
        yield Case(f"{text} read", "GET", f"{plugin}/config", **made)
        yield Case(f"{text} read by a reader", "GET", f"{plugin}/config", user="reader", java=False, status=404)
        forbidden: dict[str, Any] = {"user": "reader", "java": False, "status": 403}
        yield Case(f"{text} validated by a reader", "PUT", f"{plugin}/config/validate", config, **forbidden)
        yield Case(f"{text} created by a reader", "POST", "/connectors", {"name": "c", "config": config}, **forbidden)
        yield Case(f"{text} in a reader's preview", "POST", f"{plugin}/preview", {"config": config}, **forbidden)
        nobody: dict[str, Any] = {"user": "", "java": False, "status": 401}
        yield Case(f"{text} read by nobody", "GET", f"{plugin}/config", **nobody)
        if text == "planted.Plugin":
            # It lies in the worker's directory: who may change something may have it imported.
            continue
        yield Case(f"{text} as a connector", "POST", "/connectors", {"name": "c", "config": config})
        yield Case(f"{text} validated", "PUT", f"{plugin}/config/validate", config, **_WRONG)
        for setting in ("value.converter", "header.converter", "transforms.t.type"):
            own = {**SOURCE, "transforms": "t" if "transforms" in setting else "", setting: text}
            yield Case(f"{text} as {setting}", "POST", "/connectors", {"name": "c", "config": own})


def _bodies() -> Iterator[Case]:
    signed = {"X-Connect-Authorization": "AAAA", "X-Connect-Request-Signature-Algorithm": "HmacSHA256"}
    for what, headers in {
        "without a signature": {},
        "with a wrong signature": signed,
        "with a signature that is no base64": {**signed, "X-Connect-Authorization": "%%%"},
        "with an unknown algorithm": {**signed, "X-Connect-Request-Signature-Algorithm": "MD5"},
    }.items():
        for body in ([], [{"a": "b"}]):
            size = f"{len(body)} tasks"
            yield Case(f"{size} {what}", "POST", f"/connectors/{KEPT}/tasks", body, headers)
        yield Case(f"a fence {what}", "PUT", f"/connectors/{KEPT}/fence", None, headers)
    odd = {
        "no JSON": b"{",
        "half of a surrogate pair": rb'{"name":"c","config":{"a":"\ud800"}}',
        "no UTF-8": b'{"name":"\xff"}',
        "null": b"null",
        "a list": b"[1]",
        "a text": b'"x"',
        "an unknown field": b'{"name":"c","config":{},"x":1}',
        "no configuration": b'{"name":"c"}',
        "an object as a value": b'{"name":"c","config":{"a":{"b":1}}}',
        "an unknown state": b'{"name":"c","config":{},"initial_state":"x"}',
    }
    for what, raw in odd.items():
        # Half of a pair is a text for Java, which then misses the class.
        differs = {} if "surrogate" in what else _WRONG
        yield Case(f"a body with {what}", "POST", "/connectors", raw, **differs)
    yield Case("a body of 9 MB", "POST", "/connectors", b" " * 9_000_000, status=413, row="bodies over 8 MiB")
    positions: tuple[Any, ...] = (2**70, -(2**70), "x", None, [], {"a": 1})
    for number in positions:
        row = {"partition": {"filename": "/nowhere/in"}, "offset": {"position": number}}
        yield Case(f"an offset of {number}", "PATCH", f"/connectors/{KEPT}/offsets", {"offsets": [row]})
    for what, raw in {
        "nothing": b"",
        "null": b"null",
        "no list": b'{"offsets":1}',
        "a null": b'{"offsets":[null]}',
    }.items():
        yield Case(f"offsets with {what}", "PATCH", f"/connectors/{KEPT}/offsets", raw, **_WRONG)
    for task in ("99", "-1", "x", "2147483648", "9" * 4_000, "%ff", "%00"):
        differs = _PATHS if "%" in task else {}
        yield Case(f"the task {task[:12]}", "POST", f"/connectors/{KEPT}/tasks/{task}/restart", **differs)


def _origins() -> Iterator[Case]:
    foreign: dict[str, Any] = {
        "status": 403,
        "row": "a changing request with a foreign `Origin`",
        "says": "access.control.allow.origin",
    }
    for kind in ("", "text/plain", "application/x-www-form-urlencoded"):
        headers = {"Origin": "http://evil.example", **({"Content-Type": kind} if kind else {})}
        for method, path in (
            ("POST", f"/connectors/{KEPT}/restart"),
            ("POST", f"/connectors/{KEPT}/tasks/0/restart"),
            ("PUT", f"/connectors/{KEPT}/pause"),
            ("PUT", f"/connectors/{KEPT}/resume"),
        ):
            yield Case(
                f"{method} {path} of another site as {kind or 'nothing'}", method, path, None, headers, **foreign
            )
    yield Case("a list for another site", "GET", "/connectors", None, {"Origin": "http://evil.example"})


def _names() -> Iterator[Case]:
    slash: dict[str, Any] = {"row": "a connector's name with `/`"}
    braces: dict[str, Any] = {"row": "a connector's name with `{`", "status": 201}
    put, read = {**slash, "status": 201}, {**slash, "status": 404}
    #: A name, and what differs when it is created, put and read.
    names: dict[str, tuple[str, Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]] = {
        "empty": ("", {}, _PATHS, {}),
        "blank": (" ", {}, {}, {}),
        "a tab": ("\t", {}, {}, _PATHS),
        "a NUL": ("a\0b", {}, {}, _PATHS),
        "a line break": ("a\nb", {}, {}, _PATHS),
        "DEL": ("a\x7fb", {}, {}, _PATHS),
        "a slash": ("a/b", {}, put, read),
        "a way up": ("../a", {}, put, read),
        "two dots": ("..", {}, {}, {}),
        "a dot": (".", {}, {}, {}),
        "a percent sign": ("a%2Fb", {}, put, read),
        "a question mark": ("a?b#c;d", {}, {}, {}),
        "letters of elsewhere": ("é\U0001f600\u2028", {}, {}, {}),
        "blanks around": (" a ", {}, {}, {}),
        "a placeholder": ("${none:HOME}", braces, braces, {}),
        "a page": ("<script>alert(1)</script>", {}, put, read),
        "a backslash": ("a\\b", {}, put, read),
        "1,000 characters": ("x" * 1_000, {}, {}, {}),
        "3,000 characters": ("x" * 3_000, {}, {}, {}),
        "a name of Java's": ("con.a-0|task-0", {}, {}, {}),
    }
    for what, (name, *differences) in names.items():
        path = f"/connectors/{quote(name, safe='')}"
        yield Case(f"the name {what} created", "POST", "/connectors", _named(name), **differences[0])
        yield Case(f"the name {what} put", "PUT", f"{path}/config", SOURCE, **differences[1])
        yield Case(f"the name {what} read", "GET", path, **differences[2])
    longest = f"/connectors/{quote(LONGEST, safe='')}"
    yield Case("the longest name created", "POST", "/connectors", _named(LONGEST), java=False, status=201)
    yield Case("the longest name put", "PUT", f"{longest}/config", SOURCE, java=False, status=201)
    yield Case("the longest name read", "GET", longest, java=False, status=404)
    odd: tuple[Any, ...] = (1, None, True, [], {"a": 1})
    for one in odd:
        differs = _WRONG if isinstance(one, (list, dict)) else {}
        yield Case(f"the name {one}", "POST", "/connectors", _named(one), **differs)
    other = {"name": "c", "config": {**SOURCE, "name": "d"}}
    yield Case("another name in the configuration", "POST", "/connectors", other)


def _named(name: object) -> dict[str, object]:
    return {"name": name, "config": SOURCE}


def _last() -> Iterator[Case]:
    """What Java's worker ends with: its clients' ids are too long for Kafka's protocol."""
    long: dict[str, Any] = {"status": 400, "row": "a connector's name of more than 10,000 bytes"}
    yield Case("the name 100,000 characters created", "POST", "/connectors", _named("x" * 100_000), **long)


def _secrets() -> Iterator[Case]:
    row = _PASSWORDS
    for path in ("", "/config", "/tasks", "/status", "/topics", "/offsets"):
        differs: dict[str, Any] = {"row": row} if path in ("", "/config", "/tasks") else {}
        yield Case(f"secrets in '{path}'", "GET", f"/connectors/{KEPT}{path}", **differs)
        reader: dict[str, Any] = {"user": "reader", "java": False, "status": 200}
        yield Case(f"secrets in '{path}' for a reader", "GET", f"/connectors/{KEPT}{path}", **reader)
    yield Case("secrets in all", "GET", "/connectors?expand=info&expand=status", row=row)
    yield Case("secrets in explain", "GET", f"/connectors/{KEPT}/explain", java=False, status=200)
    yield Case("secrets after a patch of the class", "PATCH", f"/connectors/{KEPT}/config",
               {"connector.class": "FileStreamSource", "tasks.max": "1"}, row=row)  # fmt: skip
    yield Case("secrets of a configuration that is refused", "POST", "/connectors",
               {"name": "c", "config": {**_KEPT_CONFIG, "tasks.max": "x"}})  # fmt: skip
    yield Case("secrets in a validation", "PUT", _VALIDATE, {"name": "c", **_KEPT_CONFIG})


CASES: Final[tuple[Case, ...]] = (
    *_client_settings(),
    *_sql(),
    *_long(),
    *_imports(),
    *_bodies(),
    *_origins(),
    *_names(),
    *_secrets(),
    *_last(),
)
