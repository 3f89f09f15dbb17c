"""Finding plugins by the names users write."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.plugins import PluginDescriptor, PluginKind, PluginNotFoundException, Plugins
from penstock.plugins.stock import STOCK

MINE = """
from penstock.api import SourceConnector, Transformation
class {name}Connector(SourceConnector):
    def start(self, props): ...
    def stop(self): ...
    def task_class(self): ...
    def task_configs(self, max_tasks): return []
    def config(self): ...
    def version(self): return "3.1"
class Abstract{name}Connector(SourceConnector):
    pass
class Outer:
    class Inner({name}Connector):
        pass
class NotAConnector:
    pass
"""


@pytest.fixture
def plugin_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """A directory with one connector in the module that ``module_name`` names."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / f"{module_name(request)}.py").write_text(MINE.format(name="Mine"), encoding="utf-8")
    return tmp_path


def module_name(request: pytest.FixtureRequest) -> str:
    """A module name of this test alone: modules stay imported."""
    return f"plug_{request.node.name}"


@pytest.mark.parametrize(
    ("kind", "text", "target"),
    [
        (PluginKind.CONVERTER, "org.apache.kafka.connect.json.JsonConverter", "JsonConverter"),
        (PluginKind.CONVERTER, "JsonConverter", "JsonConverter"),
        (PluginKind.CONVERTER, "Json", "JsonConverter"),
        (PluginKind.CONVERTER, "org.apache.kafka.connect.storage.StringConverter", "StringConverter"),
        (PluginKind.HEADER_CONVERTER, "org.apache.kafka.connect.storage.StringConverter", "StringConverter"),
        (PluginKind.HEADER_CONVERTER, "SimpleHeaderConverter", "SimpleHeaderConverter"),
        (PluginKind.TRANSFORMATION, "org.apache.kafka.connect.transforms.HoistField$Value", "HoistFieldValue"),
        (PluginKind.TRANSFORMATION, "HoistField$Key", "HoistFieldKey"),
        (PluginKind.TRANSFORMATION, "penstock.transforms.field_values.InsertFieldKey", "InsertFieldKey"),
        (
            PluginKind.CONFIG_PROVIDER,
            "org.apache.kafka.common.config.provider.FileConfigProvider",
            "FileConfigProvider",
        ),
        (PluginKind.SOURCE, "FileStreamSource", "FileStreamSourceConnector"),
        (PluginKind.SOURCE, "org.apache.kafka.connect.file.FileStreamSourceConnector", "FileStreamSourceConnector"),
        (PluginKind.SINK, "FileStreamSink", "FileStreamSinkConnector"),
    ],
)
def test_stock_classes_answer_to_kafkas_names(kind: PluginKind, text: str, target: str) -> None:
    matching = [plugin for plugin in STOCK if plugin.kind is kind and text in plugin.names()]
    assert [plugin.target.partition(":")[2] for plugin in matching] == [target]


@pytest.mark.parametrize("plugin", STOCK, ids=lambda plugin: f"{plugin.kind.value}-{plugin.name}")
def test_every_stock_class_is_there(plugin: PluginDescriptor) -> None:
    assert Plugins().resolve(plugin.kind, plugin.name).__name__ == plugin.target.partition(":")[2]


def test_a_class_of_a_directory_is_found_by_every_form_of_its_name(
    plugin_path: Path, request: pytest.FixtureRequest
) -> None:
    plugins = Plugins([str(plugin_path)])
    module = module_name(request)
    for text in ("Mine", "MineConnector", f"{module}.MineConnector", f"{module}:MineConnector"):
        assert plugins.resolve_connector(text).__name__ == "MineConnector"
    assert plugins.resolve_connector(f"{module}.Outer.Inner").__name__ == "Inner"
    described = [plugin for plugin in plugins.descriptors([PluginKind.SOURCE]) if plugin.name.startswith(module)]
    assert [(plugin.name, plugin.version) for plugin in described] == [(f"{module}.MineConnector", "3.1")]


def test_a_directory_of_a_plugin_with_its_libraries_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "deep_plug.py").write_text(MINE.format(name="Deep"), encoding="utf-8")
    (tmp_path / "one" / "broken_plug.py").write_text("import nothing_of_that_name", encoding="utf-8")
    assert Plugins([str(tmp_path)]).resolve_connector("Deep").__module__ == "deep_plug"


@pytest.mark.parametrize("alias", ["salt", "org.example.SaltConnector"])
def test_an_entry_point_is_found_by_its_alias(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alias: str) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    module = f"plug_point_{len(alias)}"
    (tmp_path / f"{module}.py").write_text(MINE.format(name="Point"), encoding="utf-8")
    info = tmp_path / "mine-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.5\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[penstock.plugins]\n{alias} = {module}:PointConnector\n", encoding="utf-8")
    importlib.invalidate_caches()
    assert Plugins([str(tmp_path)]).resolve_connector(alias).__name__ == "PointConnector"


def test_an_unknown_class_is_answered_with_what_is_there_and_the_closest_name() -> None:
    with pytest.raises(PluginNotFoundException) as caught:
        Plugins().resolve_connector("FileStreemSource")
    message = str(caught.value)
    assert message.startswith(
        "Failed to find any class that implements Connector and which name matches FileStreemSource, "
        "available connectors are: "
    )
    assert "Did you mean FileStreamSource? If it is none of these, install" in message


@pytest.mark.parametrize(
    "text",
    [
        "org.apache.kafka.connect.tools.MockSourceConnector",
        # Python's own module `io` is no package: it cannot have this class.
        "io.debezium.connector.postgresql.PostgresConnector",
        "io.aiven.connect.jdbc.JdbcSinkConnector",
    ],
)
def test_a_class_that_only_java_has_is_answered_with_what_to_install(text: str) -> None:
    with pytest.raises(PluginNotFoundException, match="A class of Java does not run here") as caught:
        Plugins().resolve_connector(text)
    assert str(caught.value).startswith("Failed to find any class that implements Connector and which name matches")
    assert "install the Python distribution that has it for every worker" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "text", "near"),
    [
        (PluginKind.TRANSFORMATION, "HoistFild$Value", "org.apache.kafka.connect.transforms.HoistField$Value"),
        (PluginKind.CONVERTER, "JsonConvertr", "org.apache.kafka.connect.json.JsonConverter"),
        (PluginKind.SOURCE, "Nonsense", None),
    ],
)
def test_a_list_of_classes_ends_after_the_closest(kind: PluginKind, text: str, near: str | None) -> None:
    message = Plugins().choice(kind, text)
    there = Plugins().descriptors([kind])
    listed = message.partition("are: ")[2].partition(" and ")[0].partition(". Did")[0].split(", ")
    assert len(listed) == min(3, len(there))
    assert near is None or listed[0].startswith(near)
    if len(there) > 3:
        assert f" and {len(there) - 3} more, which `penstock plugins` lists" in message


def test_a_class_of_another_kind_is_refused(plugin_path: Path, request: pytest.FixtureRequest) -> None:
    plugins = Plugins([str(plugin_path)])
    module = module_name(request)
    with pytest.raises(PluginNotFoundException, match="is not a Connector"):
        plugins.resolve_connector(f"{module}.NotAConnector")
    with pytest.raises(PluginNotFoundException, match="is abstract, it still needs: "):
        plugins.resolve_connector(f"{module}.AbstractMineConnector")
    with pytest.raises(PluginNotFoundException, match="has no class Missing"):
        plugins.resolve_connector(f"{module}:Missing")


def test_a_module_that_cannot_be_imported_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "needs_driver.py").write_text("import driver_that_is_missing", encoding="utf-8")
    with pytest.raises(PluginNotFoundException, match="No module named 'driver_that_is_missing'"):
        Plugins().resolve_connector("needs_driver.Source")


def test_listing_plugins_imports_neither_spark_nor_arrow() -> None:
    code = (
        "import sys; from penstock.plugins import Plugins; Plugins().descriptors();"
        "print([m for m in ('pyspark', 'pyarrow', 'confluent_kafka') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
