"""``penstock cluster`` over workers that answer what they are to answer."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock.broker import free_port
from penstock.cli.cluster import EXIT_NOT_IN_ORDER, MemberView, task_names, view_of
from penstock.cli.main import main
from penstock.cli.session import ApiClient

NOTHING: dict[str, Any] = {"connectors": [], "tasks": []}


@pytest.fixture(autouse=True)
def _asked_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.cluster._AGAIN_S", 0.05)


class Group:
    """Workers, each at an address of its own; the first one leads."""

    def __init__(self, size: int) -> None:
        self.logins: list[str | None] = []
        self.servers = [self._server(number) for number in range(size)]
        self.urls = [f"http://127.0.0.1:{server.server_port}/" for server in self.servers]
        self.answers: list[dict[str, Any] | int] = [self._answer(number) for number in range(size)]
        self.threads = [threading.Thread(target=server.serve_forever, args=(0.02,)) for server in self.servers]
        for thread in self.threads:
            thread.start()
        self.leader["members"] = [
            {"member_id": f"m{number}", "url": url, **NOTHING} for number, url in enumerate(self.urls)
        ]
        self.leader["waiting"] = NOTHING

    @property
    def leader(self) -> dict[str, Any]:
        """What the leader answers."""
        return self.answer(0)

    def answer(self, number: int) -> dict[str, Any]:
        found = self.answers[number]
        assert isinstance(found, dict)
        return found

    def run(self, number: int, **units: list[Any]) -> None:
        """The leader has given a worker these, and it runs them."""
        self.answer(number).update(units)
        self.leader["members"][number].update(units)

    def ask(self, number: int, *words: str, login: str = "") -> Result:
        url = self.urls[number].replace("//", f"//{login}@") if login else self.urls[number]
        return CliRunner().invoke(main, ["cluster", *words], env={"PENSTOCK_URL": url})

    def json(self, number: int, code: int = 0) -> dict[str, Any]:
        done = self.ask(number, "-o", "json")
        assert done.exit_code == code, done.output
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def findings(self, number: int) -> str:
        return " | ".join(self.json(number, EXIT_NOT_IN_ORDER)["findings"])

    def stop(self, number: int) -> None:
        self.servers[number].shutdown()
        self.servers[number].server_close()

    def close(self) -> None:
        for number, thread in enumerate(self.threads):
            self.stop(number)
            thread.join(10)

    def _server(self, number: int) -> ThreadingHTTPServer:
        group = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                group.logins.append(self.headers.get("Authorization"))
                answer = group.answers[number]
                status, body = (answer, {"message": f"HTTP {answer}"}) if isinstance(answer, int) else (200, answer)
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        return ThreadingHTTPServer(("127.0.0.1", 0), Answers)

    def _answer(self, number: int) -> dict[str, Any]:
        return {
            "worker_id": self.urls[number].removeprefix("http://").rstrip("/"),
            "group_id": "workers",
            "config_topic": "connect-configs",
            "obstacle": None,
            "member_id": f"m{number}",
            "generation": 4,
            "protocol": "sessioned",
            "leader": self.urls[0],
            "is_leader": number == 0,
            "config_offset": 12,
            **NOTHING,
            "next_rebalance_in_ms": None,
        }


@pytest.fixture
def group() -> Iterator[Group]:
    made = Group(3)
    try:
        yield made
    finally:
        made.close()


def tasks(connector: str, *numbers: int) -> list[dict[str, Any]]:
    return [{"connector": connector, "task": number} for number in numbers]


@pytest.mark.parametrize("asked", [0, 1])
def test_members_are_shown_with_what_they_run_whoever_is_asked(group: Group, asked: int) -> None:
    group.run(0, connectors=["a"], tasks=tasks("b", 0, 1, 2, 4))
    group.run(2, connectors=["b"], tasks=tasks("a", 0))

    done = group.ask(asked)

    assert done.exit_code == 0, done.output
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[0] == "Group workers, generation 4, protocol sessioned, config topic connect-configs"
    assert lines[1] == "MEMBER STATE CONFIG OFFSET CONNECTORS TASKS"
    assert set(lines[2:]) == {
        f"{group.urls[0]} leader ok 12 a b-0..2, b-4",
        f"{group.urls[1]} ok 12 - -",
        f"{group.urls[2]} ok 12 b a-0",
    }


def test_for_programs_there_is_json(group: Group) -> None:
    group.run(1, connectors=["a"], tasks=tasks("a", 0))

    found = group.json(2)

    assert {key: found[key] for key in ("group_id", "generation", "protocol", "leader", "findings")} == {
        "group_id": "workers",
        "generation": 4,
        "protocol": "sessioned",
        "leader": group.urls[0],
        "findings": [],
    }
    by_url = {one["url"]: one for one in found["members"]}
    assert by_url[group.urls[1]] == {
        "url": group.urls[1],
        "is_leader": False,
        "state": "ok",
        "config_offset": 12,
        "connectors": ["a"],
        "tasks": tasks("a", 0),
    }
    assert [one["is_leader"] for one in found["members"]].count(True) == 1


def test_a_member_that_does_not_answer_is_shown_with_what_it_was_given(group: Group) -> None:
    group.run(2, connectors=["a"], tasks=tasks("a", 0))
    group.stop(2)

    found = group.json(1, EXIT_NOT_IN_ORDER)

    [silent] = [one for one in found["members"] if one["url"] == group.urls[2]]
    assert (silent["state"], silent["config_offset"], silent["connectors"]) == ("no answer", None, ["a"])
    assert "refused" in silent["error"]
    assert "rest.advertised.host.name" in found["findings"][0]


def test_a_leader_that_does_not_answer_leaves_the_word_of_the_one_that_was_asked(group: Group) -> None:
    group.run(1, connectors=["a"])
    group.stop(0)

    found = group.json(1, EXIT_NOT_IN_ORDER)

    assert [(one["url"], one["connectors"]) for one in found["members"]] == [(group.urls[1], ["a"])]
    assert f"The leader {group.urls[0]} does not answer" in found["findings"][0]


def test_a_worker_that_knows_no_leader_says_why(group: Group) -> None:
    group.answer(1).update(leader=None, obstacle="The worker cannot join the group workers: no right")

    found = group.json(1, EXIT_NOT_IN_ORDER)

    assert [one["state"] for one in found["members"]] == ["not in"]
    assert found["findings"] == [
        f"No leader is known to {group.answer(1)['worker_id']}: The worker cannot join the group workers: no right"
    ]


def test_a_worker_that_lags_behind_in_the_config_topic_is_told(group: Group) -> None:
    group.answer(1)["config_offset"] = 9

    done = group.ask(0)

    assert done.exit_code == EXIT_NOT_IN_ORDER
    assert f"{group.urls[1]} has read the config topic up to 9, but it was written up to 12" in done.stdout


def test_a_worker_that_was_asked_a_moment_too_early_does_not_lag(group: Group) -> None:
    answer, asked = group.answer(1), [0]

    class Later(dict[str, Any]):
        def __iter__(self) -> Iterator[str]:
            asked[0] += 1
            self["config_offset"] = 9 if asked[0] == 1 else 13
            return super().__iter__()

        def items(self) -> Any:
            list(self)
            return super().items()

    group.answers[1] = Later(answer)

    assert group.json(0)["findings"] == []
    assert asked[0] > 1


def test_a_worker_that_has_not_taken_over_its_work_is_told(group: Group) -> None:
    group.leader["members"][1].update(connectors=["a"])

    assert f"{group.urls[1]} does not run its assigned work yet" in group.findings(0)


def test_lost_work_is_named_with_the_time_for_which_it_waits(group: Group) -> None:
    group.leader.update(waiting={"connectors": ["a"], "tasks": tasks("a", *range(9))}, next_rebalance_in_ms=8300)

    assert group.findings(2) == (
        "No worker runs a, a-0..4 and 4 more: other workers get it in 8.3 s, unless its worker comes back "
        "(scheduled.rebalance.max.delay.ms)"
    )


def test_two_groups_on_one_config_topic_are_told(group: Group) -> None:
    group.leader["warning"] = "another group of workers writes to this config topic"

    assert "Warning: another group of workers writes to this config topic (connect-configs)" in group.findings(1)


def test_members_that_give_one_address_are_told(group: Group) -> None:
    group.leader["members"][2]["url"] = group.urls[1]

    told = group.findings(0)

    assert f"2 members say that they are at {group.urls[1]}" in told
    assert "another member" in told


def test_a_worker_of_another_kind_has_no_such_page(group: Group) -> None:
    group.answers[2] = 404

    assert "it is no Penstock worker" in group.findings(0)


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [(404, 4, "HTTP 404"), (503, 1, "HTTP 503")],
    ids=["a standalone worker", "one that starts"],
)
def test_what_has_no_group_is_told_as_the_worker_says_it(group: Group, answer: int, code: int, text: str) -> None:
    group.answers[1] = answer

    done = group.ask(1)

    assert (done.exit_code, text in done.stderr) == (code, True)


def test_nobody_there_has_an_exit_code_of_its_own() -> None:
    done = CliRunner().invoke(main, ["cluster", "--url", f"http://127.0.0.1:{free_port()}"])

    assert done.exit_code == 3
    assert "No worker answers" in done.stderr


def test_the_login_goes_to_all_workers(group: Group) -> None:
    assert group.ask(1, login="amy:secret").exit_code == 0
    assert set(group.logins) == {"Basic " + base64.b64encode(b"amy:secret").decode()}


def test_a_login_for_https_is_not_sent_over_http() -> None:
    client = ApiClient("https://amy:secret@one:8083")

    assert "Authorization" in client.at("https://two:8083", 1)._headers
    assert "Authorization" not in client.at("http://two:8083", 1)._headers


@pytest.mark.parametrize(
    ("numbers", "names"), [((), []), ((0,), ["a-0"]), ((3, 1, 2), ["a-1..3"]), ((0, 2, 3), ["a-0", "a-2..3"])]
)
def test_tasks_that_follow_each_other_are_named_together(numbers: tuple[int, ...], names: list[str]) -> None:
    assert task_names(tasks("a", *numbers)) == names


def test_a_group_of_one_that_leads_itself_is_in_order() -> None:
    answer: Mapping[str, Any] = {
        "worker_id": "a:1",
        "member_id": "m",
        "group_id": "g",
        "config_topic": "c",
        "obstacle": None,
        "generation": 1,
        "protocol": "sessioned",
        "leader": "http://a:1/",
        "config_offset": 0,
        "next_rebalance_in_ms": None,
        **NOTHING,
    }

    found = view_of(answer, answer, [MemberView("http://a:1/", True, {**NOTHING, "member_id": "m"}, answer)])

    assert (found.findings, found.state(found.members[0]), found.settled) == ((), "ok", True)
