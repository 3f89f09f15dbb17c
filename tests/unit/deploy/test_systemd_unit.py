"""The unit for systemd says what a worker needs of a service manager."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
from tests.unit.docs.pages import ROOT

from penstock.cli.worker.standalone import EXIT_CONNECTOR_FAILED
from penstock.settings import StandaloneSettings

UNIT = ROOT / "deploy/systemd/penstock.service"
OF_A_CLUSTER = ROOT / "deploy/systemd/penstock-distributed.service"
PAGE = ROOT / "docs/systemd.md"


def keys(path: Path) -> dict[str, dict[str, list[str]]]:
    """The values of each key of each section; a key may stand there more than once."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    section = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            key, equals, value = line.partition("=")
            assert equals, f"{line!r} is no setting"
            found[section][key].append(value)
    return found


def test_the_signal_goes_to_the_worker_alone_and_a_killed_worker_comes_back() -> None:
    service = keys(UNIT)["Service"]

    assert service["KillMode"] == ["mixed"]
    assert service["KillSignal"] == ["SIGTERM"]
    assert service["Type"] == ["exec"]
    assert service["Restart"] == ["on-failure"]
    assert str(EXIT_CONNECTOR_FAILED) in service["RestartPreventExitStatus"][0].split()
    assert keys(UNIT)["Install"]["WantedBy"] == ["multi-user.target"]


def test_a_worker_of_a_cluster_is_run_as_any_other() -> None:
    standalone, distributed = keys(UNIT), keys(OF_A_CLUSTER)
    own = {"ExecStart", "RestartPreventExitStatus"}

    assert {key for key in standalone["Service"] if standalone["Service"][key] != distributed["Service"][key]} == own
    assert distributed["Service"].keys() == standalone["Service"].keys()
    assert distributed["Install"] == standalone["Install"]
    command, file = distributed["Service"]["ExecStart"][0].split()
    assert command.rpartition("/")[2] == "connect-distributed"
    assert f"`{file}`" in PAGE.read_text(encoding="utf-8")
    # It has no connector files that could be wrong.
    assert distributed["Service"]["RestartPreventExitStatus"] == ["2"]


def test_the_time_for_stopping_covers_the_workers_own_deadlines() -> None:
    needed = {"bootstrap.servers": "a:1", "offset.storage.file.filename": "o"}
    converters = {"key.converter": "JsonConverter", "value.converter": "JsonConverter"}
    settings = StandaloneSettings.parse({**needed, **converters})
    deadlines_ms = settings.task_shutdown_graceful_timeout_ms + settings.offset_flush_timeout_ms

    assert int(keys(UNIT)["Service"]["TimeoutStopSec"][0]) >= 3 * deadlines_ms / 1000


def test_the_worker_may_write_its_own_directories_alone_and_java_may_compile() -> None:
    service = keys(UNIT)["Service"]

    assert service["ProtectSystem"] == ["strict"]
    assert service["NoNewPrivileges"] == ["yes"]
    assert service["StateDirectory"] == service["CacheDirectory"] == ["penstock"]
    assert "MemoryDenyWriteExecute" not in service


def test_the_page_speaks_of_what_the_unit_says() -> None:
    page = PAGE.read_text(encoding="utf-8")
    lines = UNIT.read_text(encoding="utf-8").splitlines()
    named = ["KillMode=mixed", "TimeoutStopSec=60", "LimitNOFILE=65536", "OOMPolicy=continue", "ProtectSystem=strict"]

    assert [line for line in named if line not in lines or f"`{line}`" not in page] == []


@pytest.mark.slow
@pytest.mark.parametrize("unit", [UNIT, OF_A_CLUSTER], ids=lambda unit: unit.stem)
def test_systemd_takes_the_unit_where_there_is_one(unit: Path, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        # The keys are checked above; only systemd itself knows all of them.
        return
    text = unit.read_text(encoding="utf-8")
    # Programs and accounts of the machine that it is installed on.
    here = re.sub(r"/opt/penstock/\.venv/bin/connect-\w+", "/bin/true", text)
    (tmp_path / unit.name).write_text(here.replace("User=penstock\n", "").replace("Group=penstock\n", ""))
    command = [str(analyze), "verify", str(tmp_path / unit.name)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)

    assert (done.returncode, [line for line in done.stderr.splitlines() if unit.name in line]) == (0, [])
