"""Config providers and the placeholders that use them."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.config import (
    ConfigData,
    ConfigProvider,
    ConfigTransformer,
    DirectoryConfigProvider,
    EnvVarConfigProvider,
    FileConfigProvider,
)
from penstock.errors import ConfigException


class _Recorded(ConfigProvider):
    """Answers from a map of paths and remembers what it was asked."""

    def __init__(self, data: Mapping[str, Mapping[str, str]], ttl: int | None = None) -> None:
        self.data = data
        self.ttl = ttl
        self.asked: list[tuple[str, set[str]]] = []
        self.closed = False

    def get(self, path: str, keys: Collection[str] | None = None) -> ConfigData:
        self.asked.append((path, set(keys or ())))
        return ConfigData(self.data.get(path, {}), self.ttl)

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("value", "resolved"),
    [
        ("${p:/x:a}", "1"),
        ("<${p:/x:a}-${p:b}>", "<1-2>"),
        ("${p:/x:gone}", "${p:/x:gone}"),
        ("${p:/gone:a}", "${p:/gone:a}"),
        ("${other:a}", "${other:a}"),
        ("${other:a}${p:b}", "${other:a}2"),
        ("${p::b}", "2"),
        ("${p:/x:with:colon}", "5"),
        ("${p:nested}", "${p:b}"),
        ("${p:dollar}", r"$1 \1 \g<0>"),
        ("$p:b}", "$p:b}"),
        ("${p}", "${p}"),
        ("${p:b", "${p:b"),
        ("", ""),
    ],
)
def test_placeholders_are_resolved_once_and_unknown_ones_stay(value: Any, resolved: str) -> None:
    data = {"": {"b": "2", "nested": "${p:b}", "dollar": r"$1 \1 \g<0>"}, "/x": {"a": "1", "with:colon": "5"}}
    assert ConfigTransformer({"p": _Recorded(data)}).transform({"k": value}) == {"k": resolved}


def test_each_path_is_read_once_with_the_keys_that_are_wanted() -> None:
    provider = _Recorded({"/x": {"a": "1", "b": "2"}})
    ConfigTransformer({"p": provider}).transform({"k": "${p:/x:a}${p:/x:b}", "l": "${p:/x:a}", "m": "plain"})
    assert provider.asked == [("/x", {"a", "b"})]


def test_a_null_value_passes_through() -> None:
    config: Any = {"k": None}
    assert ConfigTransformer({}).transform(config) == {"k": None}


def test_times_to_live_are_kept_by_path() -> None:
    short, forever = _Recorded({"/x": {"a": "1"}}, ttl=500), _Recorded({"": {"b": "2"}})
    resolved = ConfigTransformer({"s": short, "f": forever}).resolve({"k": "${s:/x:a}${f:b}"})
    assert resolved.data == {"k": "12"}
    assert resolved.ttls == {"/x": 500}


def test_closing_the_transformer_closes_its_providers() -> None:
    provider = _Recorded({})
    ConfigTransformer({"p": provider}).close()
    assert provider.closed


def _file(tmp_path: Path) -> Path:
    file = tmp_path / "secrets" / "db.properties"
    file.parent.mkdir()
    file.write_text("user=ann\npassword=h\u00e4rt\n", encoding="utf-8")
    return file


def test_the_file_provider_reads_a_properties_file(tmp_path: Path) -> None:
    file = _file(tmp_path)
    provider = FileConfigProvider()
    provider.configure({})
    assert provider.get(str(file)).data == {"user": "ann", "password": "h\u00e4rt"}
    assert provider.get(str(file), {"user", "gone"}) == ConfigData({"user": "ann"}, None)
    assert provider.get("").data == {}
    with pytest.raises(ConfigException, match="Could not read properties from file"):
        provider.get(str(tmp_path / "gone.properties"))


def test_the_file_provider_reads_only_below_its_allowed_paths(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = _file(tmp_path)
    other = tmp_path / "secrets-of-others"
    other.mkdir()
    (other / "x.properties").write_text("user=eve\n")
    provider = FileConfigProvider()
    provider.configure({"allowed.paths": str(file.parent)})
    assert provider.get(str(file)).data["user"] == "ann"
    for path in (other / "x.properties", f"{file.parent}/../secrets-of-others/x.properties"):
        assert provider.get(str(path)).data == {}
    assert "not below allowed.paths" in caplog.text


def test_allowed_paths_must_be_absolute_and_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigException, match="Path some/where is not absolute"):
        FileConfigProvider().configure({"allowed.paths": f"{tmp_path},some/where"})
    with pytest.raises(ConfigException, match="does not exist"):
        DirectoryConfigProvider().configure({"allowed.paths": str(tmp_path / "gone")})


def test_the_directory_provider_gives_files_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(" abc\n", encoding="utf-8")
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "hidden").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "token")
    provider = DirectoryConfigProvider()
    provider.configure({})
    assert provider.get(str(tmp_path)).data == {"token": " abc\n", "link": " abc\n"}
    assert provider.get(str(tmp_path), ["token", "deeper"]).data == {"token": " abc\n"}
    assert provider.get("").data == {}


def test_the_directory_provider_leaves_what_it_may_not_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "token").write_text("abc")
    provider = DirectoryConfigProvider()
    provider.configure({"allowed.paths": str(tmp_path / "in")})
    assert provider.get(str(tmp_path)).data == {}
    assert provider.get(str(tmp_path / "in" / "token")).data == {}
    assert "is not a directory" in caplog.text
    assert provider.get(str(tmp_path / "in")).data == {"token": "abc"}


@pytest.fixture
def fenced(tmp_path: Path) -> Path:
    """A directory with ways out of it, beside a secret that is not to be read."""
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("password=hidden\n")
    (inside / "own").write_text("password=mine\n")
    (inside / "file-link").symlink_to(outside / "secret")
    (inside / "folder-link").symlink_to(outside)
    (inside / "own-link").symlink_to("own")
    return inside


@pytest.mark.parametrize(
    "path",
    [
        "{in}/../out/secret",
        "{in}/./../in/../out//secret",
        "{in}/file-link",
        "{in}/folder-link/secret",
        "{in}/folder-link/../out/secret",
        "{in}-not/../out/secret",
        "{in}/own\0",
        "\0",
        "../out/secret",
        "/etc/passwd",
        "/proc/self/environ",
        "/dev/zero",
        "~/secret",
        "{in}/" + "x" * 5000 + "/../../out/secret",
    ],
)
def test_no_path_leads_out_of_what_a_provider_may_read(fenced: Path, path: str) -> None:
    asked = path.replace("{in}", str(fenced))
    for provider in (FileConfigProvider(), DirectoryConfigProvider()):
        provider.configure({"allowed.paths": str(fenced)})
        assert provider.get(asked).data == provider.get(asked, {"password", "secret"}).data == {}


def test_no_key_leads_out_of_a_directory(fenced: Path) -> None:
    provider = DirectoryConfigProvider()
    provider.configure({"allowed.paths": str(fenced)})
    out = str(fenced.parent / "out" / "secret")
    keys = {out, "../out/secret", "folder-link/secret", "file-link", "folder-link", "..", ".", "", "own\0", "x" * 5000}
    assert provider.get(str(fenced), keys).data == {}
    assert provider.get(str(fenced)).data == {"own": "password=mine\n", "own-link": "password=mine\n"}


def test_allowed_paths_may_be_links_that_are_exchanged(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "db.properties").write_text(f"password={name}\n")
    link = tmp_path / "current"
    link.symlink_to("one")
    provider = FileConfigProvider()
    provider.configure({"allowed.paths": str(link)})
    assert provider.get(str(link / "db.properties")).data == {"password": "one"}
    link.unlink()
    link.symlink_to("two")
    assert provider.get(str(link / "db.properties")).data == {"password": "two"}


@pytest.mark.parametrize("limited", [True, False])
def test_what_is_no_file_is_an_error_that_says_so(tmp_path: Path, limited: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    files, directories = FileConfigProvider(), DirectoryConfigProvider()
    for provider in (files, directories):
        provider.configure({"allowed.paths": f"{tmp_path},/dev"} if limited else {})
    for path, words in ((tmp_path / "pipe", "pipe"), (Path("/dev/zero"), "device"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigException, match=f"Could not read properties from file {path}: .*{words}"):
            files.get(str(path), {"password"})
    assert files.get("a\0b").data == directories.get("a\0b").data == {}
    assert directories.get(str(tmp_path / ("x" * 5000))).data == directories.get(str(tmp_path)).data == {}


def test_the_directory_provider_refuses_files_that_are_not_text(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigException, match="Could not read file key"):
        DirectoryConfigProvider().get(str(tmp_path), ["key"])


def test_the_environment_provider_gives_variables_that_its_pattern_takes() -> None:
    provider = EnvVarConfigProvider({"DB_USER": "ann", "DB_PASSWORD": "x", "HOME": "/root", "XDB_": "y"})
    provider.configure({"allowlist.pattern": "DB_.*"})
    assert provider.get("").data == {"DB_USER": "ann", "DB_PASSWORD": "x"}
    assert provider.get("", {"DB_USER", "HOME"}).data == {"DB_USER": "ann"}


def test_the_environment_provider_has_no_paths_and_refuses_a_bad_pattern() -> None:
    provider = EnvVarConfigProvider({})
    with pytest.raises(ConfigException, match="Path is not supported for EnvVarConfigProvider, invalid value '/x'"):
        provider.get("/x")
    with pytest.raises(
        ConfigException, match=r"allowlist\.pattern: Syntax error in regular expression: Unclosed group"
    ):
        provider.configure({"allowlist.pattern": "("})


def test_the_environment_is_that_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_PROVIDER_TEST", "here")
    provider = EnvVarConfigProvider()
    provider.configure({})
    assert provider.get("", ["PENSTOCK_PROVIDER_TEST"]).data == {"PENSTOCK_PROVIDER_TEST": "here"}
    assert os.environ["PENSTOCK_PROVIDER_TEST"] == "here"
