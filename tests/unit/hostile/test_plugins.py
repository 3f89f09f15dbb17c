"""Names of classes: reading imports nothing, changing imports plugins only, what exits is an error of that class."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testkit.connectors.probes import BOARD
from testkit.doubles.control_plane import SOURCE
from tests.unit.rest.api_client import Api, serving

from penstock.config import SubclassOf, importable
from penstock.config.importable import refusal
from penstock.errors import BadRequestException, ConfigException, ConnectException, as_exception
from penstock.plugins import PluginKind, Plugins
from penstock.plugins.kinds import PluginRefusedException
from penstock.plugins.stock import STOCK
from penstock.settings import InstalledPlugins
from penstock.validation.plugin_checks import PluginCatalog
from penstock.validation.validator import ConnectorValidator

#: Modules that do something when they are imported, or hold no plugin, and names of classes in them.
FOREIGN = [
    "this.Zen",
    "this:Zen",
    "antigravity.Comic",
    "idlelib.idle.Shell",
    "turtledemo.__main__.DemoWindow",
    "pyspark.shell.Shell",
    "pyspark.daemon:Daemon",
    "pandas.testing.Frame",
    "py4j.java_gateway.JavaGateway",
    "penstock.__main__.Main",
    "penstock.cli.worker.worker.Worker",
    "penstock.broker.EmbeddedBroker",
    "penstock.worker.worker:Worker",
    "__main__.Main",
]
SINK = {"name": "a", "connector.class": "FileStreamSink", "topics": "t", "file": "/tmp/x"}
LOADER = """
import sys
from pathlib import Path
Path(__file__).with_suffix(".ran").touch()
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of Python's search path; its modules are forgotten at the end."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", "") and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.fixture
def api() -> Iterator[Api]:
    with serving() as found:
        found.setup.validator.strict = True
        yield found


def module(directory: Path, name: str, text: str = "") -> None:
    (directory / f"{name}.py").write_text(LOADER + text)


def ran(directory: Path, name: str) -> bool:
    return (directory / f"{name}.ran").exists()


# ------------------------------------------------------------------ what may be imported
@pytest.mark.parametrize("text", FOREIGN)
def test_a_module_without_plugins_is_not_imported(text: str) -> None:
    name = text.partition(":")[0] if ":" in text else text.rpartition(".")[0]
    before = name in sys.modules
    for kind in (PluginKind.SOURCE, PluginKind.CONVERTER, PluginKind.TRANSFORMATION, PluginKind.PREDICATE):
        with pytest.raises(PluginRefusedException, match="which has no class for a configuration"):
            Plugins().resolve(kind, text)
    if not before:
        # For other settings a module that is loaded may be looked into: that runs nothing.
        with pytest.raises((LookupError, ConnectException)):
            InstalledPlugins(Plugins()).find_class(None, text)
    assert (name in sys.modules) is before


@pytest.mark.parametrize("text", FOREIGN)
def test_no_setting_of_a_connector_imports_it(text: str) -> None:
    for setting in ("value.converter", "header.converter", "transforms.t.type", "predicates.p.type"):
        config = {**SINK, "transforms": "t", "predicates": "p", setting: text}
        infos = ConnectorValidator(Plugins()).infos(config, config)
        found = next(one for one in infos.findings if one.name == setting)
        assert any("no class for a configuration" in error for error in found.value.error_messages), setting
    with pytest.raises(BadRequestException, match="no class for a configuration"):
        ConnectorValidator(Plugins()).infos({**SINK, "connector.class": text}, {**SINK, "connector.class": text})


@pytest.mark.parametrize("text", ["this.Zen", "antigravity:Comic", "pyspark.shell.Shell"])
def test_a_setting_that_names_a_class_imports_it_neither(text: str) -> None:
    with pytest.raises(ConfigException, match="no class for a configuration"):
        SubclassOf(object).ensure_valid("codec", text)
    assert text.partition(":")[0].rpartition(".")[0] not in sys.modules or ":" in text


@pytest.mark.parametrize("plugin", STOCK, ids=lambda plugin: plugin.name)
def test_every_stock_plugin_may_be_named_by_its_path(plugin: Any) -> None:
    assert refusal(plugin.target.partition(":")[0]) is None


def test_what_lies_in_a_directory_of_the_search_path_is_imported(directory: Path) -> None:
    module(directory, "mine", "from testkit.connectors.probes import ProbeSource\nclass Mine(ProbeSource): pass\n")
    assert Plugins().resolve(PluginKind.SOURCE, "mine.Mine").__name__ == "Mine"
    assert ran(directory, "mine")


def test_a_module_that_has_a_class_from_elsewhere_lends_it_to_nobody(directory: Path) -> None:
    module(directory, "lender", "from subprocess import Popen\nfrom penstock.api import SourceConnector\n")
    for name in ("Popen", "SourceConnector"):
        with pytest.raises(ConnectException):
            Plugins().resolve(PluginKind.SOURCE, f"lender.{name}")


@pytest.mark.parametrize("project", ["penstock", "pandas", "confluent-kafka", "uvicorn"])
def test_what_a_distribution_needs_is_read_as_python_reads_it(project: str) -> None:
    found = importlib.metadata.distribution(project)
    name, requirements = importable._name_and_requirements(found)
    assert (name, requirements) == (found.metadata["Name"], found.requires or [])
    assert requirements


# ------------------------------------------------------------------ reading
@pytest.mark.parametrize("name", ["this:x", "this.x", "unseen:Thing", "unseen.Thing", "unseen", "pyspark.shell:x"])
def test_a_reader_has_nothing_imported(name: str, api: Api, directory: Path) -> None:
    module(directory, "unseen", "class Thing: pass\n")
    status, message = api.error("GET", f"/connector-plugins/{name}/config")
    assert (status, message) == (404, f"Unknown plugin {name}.")
    assert not ran(directory, "unseen")
    assert "unseen" not in sys.modules
    assert "this" not in sys.modules


def test_a_reader_sees_what_was_discovered_and_what_is_loaded(directory: Path) -> None:
    module(
        directory, "dropped", "from testkit.connectors.probes import ProbeSource\nclass Dropped(ProbeSource): pass\n"
    )
    catalog = PluginCatalog(Plugins([str(directory)]))
    assert catalog.settings_of("dropped.Dropped") == catalog.settings_of("Dropped")
    assert catalog.settings_of(SOURCE)


# ------------------------------------------------------------------ what exits
EXITS = [
    "SystemExit(3)",
    "KeyboardInterrupt()",
    "GeneratorExit()",
    "__import__('asyncio').CancelledError()",
    "Odd('x')",
]
PLUGIN = """
from testkit.connectors.probes import ProbeSource
from penstock.config import ConfigDef, ConfigType, LambdaValidator
from penstock.api import BaseTransformation, Converter
class Odd(BaseException): pass
def leave(*args):
    raise {error}
class Base(ProbeSource): pass
class Connector(Base): pass
class Change(BaseTransformation):
    def apply(self, record): return record
    def config(self): return ConfigDef()
    def configure(self, configs): pass
    def close(self): pass
class Codec(Converter):
    def configure(self, configs, is_key=False): pass
    def config(self): return ConfigDef()
    def from_connect_data(self, topic, schema, value, headers=None): return b""
    def to_connect_data(self, topic, value, headers=None): return None, None
def checked(self):
    return ConfigDef().define("n", ConfigType.STRING, default=None, validator=None).define_key(
        __import__("dataclasses").replace(
            ConfigDef().define("m", ConfigType.STRING, default=None).keys["m"], validator=LambdaValidator(leave)))
"""
PLACES = {
    "a connector's module": "leave()",
    "a connector's constructor": "Connector.__init__ = leave",
    "a connector's config": "Connector.config = leave",
    "a connector's validate": "Connector.validate = leave",
    "a connector's validator": "Connector.config = checked",
    "a transform's constructor": "Change.__init__ = leave",
    "a transform's config": "Change.config = leave",
    "a transform's validator": "Change.config = checked",
    "a converter's constructor": "Codec.__init__ = leave",
    "a converter's config": "Codec.config = leave",
    "a converter's validator": "Codec.config = checked",
}


#: What ends a process in each place, everything in one of them, and something else in each of the others.
LEAVES = dict.fromkeys(
    [
        *((place, EXITS[0]) for place in PLACES),
        *(("a connector's validate", error) for error in EXITS),
        *((place, EXITS[1 + number % (len(EXITS) - 1)]) for number, place in enumerate(PLACES)),
    ]
)


@pytest.mark.parametrize(("place", "error"), LEAVES)
def test_what_exits_is_an_error_of_its_class(place: str, error: str, api: Api, directory: Path) -> None:
    name = f"leaving{abs(hash((place, error)))}"
    module(directory, name, PLUGIN.format(error=error) + PLACES[place] + "\n")
    config = {
        "name": "a",
        "connector.class": f"{name}.Connector",
        "transforms": "t",
        "transforms.t.type": f"{name}.Change",
    }
    config["value.converter"] = f"{name}.Codec"
    answers = [
        api.call("PUT", f"/connector-plugins/{name}.Connector/config/validate", config),
        api.call("POST", "/connectors", {"name": "a", "config": config}),
        api.call("PUT", "/connectors/a/config", config),
        api.call("POST", f"/connector-plugins/{name}.Connector/preview", {"config": config}),
        api.call("GET", f"/connector-plugins/{name}.Connector/config"),
    ]
    told = error.partition("(")[0].rpartition(".")[2] if "import" not in error else "CancelledError"
    assert all(status in (200, 400, 404) for status, _ in answers), answers
    assert answers[1][0] == 400, answers[1]
    assert told in str(answers[0][1]) + str(answers[1][1])
    assert api.call("GET", "/connectors") == (200, [])


@pytest.mark.parametrize("call", ["initialize", "start", "stop", "task_configs"])
def test_a_connector_that_exits_ends_nobody_else(call: str) -> None:
    with serving() as api:
        BOARD.fail["a", call] = SystemExit(4)  # type: ignore[assignment]
        api.create("a")
        api.call("PUT", "/connectors/a/pause")
        api.call("PUT", "/connectors/a/stop")
        assert api.create("b")[0] == 201
        assert api.call("DELETE", "/connectors/a")[0] in (204, 500)
        assert api.call("GET", "/connectors/b/status")[0] == 200


def test_an_exit_is_told_as_an_error() -> None:
    made = as_exception(SystemExit("no licence"))
    assert (type(made), str(made)) == (ConnectException, "SystemExit: no licence")
    assert isinstance(made.__cause__, SystemExit)
    error = ValueError("x")
    assert as_exception(error) is error


def test_a_process_that_validates_such_a_class_lives_on(tmp_path: Path) -> None:
    module(tmp_path, "gone", "sys.exit(7)\n")
    text = (
        "from penstock.plugins import Plugins, PluginKind\n"
        f"plugins = Plugins(['{tmp_path}'])\n"
        "print(len(plugins.descriptors([PluginKind.SOURCE])))\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 2
