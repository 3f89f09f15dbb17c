"""Values stored outside a configuration: placeholders `${provider:[path:]key}`, and the providers of their values.

The thread that starts the worker configures each provider once; after that any thread may call `get`.
"""

from __future__ import annotations

import logging
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.config.java_pattern import compile_java
from penstock.config.properties import load_properties, read_limited
from penstock.errors import ConfigException, PatternTimeoutException

_log = logging.getLogger(__name__)

ALLOWED_PATHS: Final = "allowed.paths"
ALLOWLIST_PATTERN: Final = "allowlist.pattern"


@dataclass(frozen=True)
class ConfigData:
    """The values that a provider has at a path.

    Attributes:
        data: The values by key.
        ttl: Milliseconds for which they stay valid; None for no limit.

    Source: org.apache.kafka.common.config.ConfigData.
    """

    data: Mapping[str, str]
    ttl: int | None = None


class ConfigProvider(ABC):
    """A source of values for the placeholders in configurations.

    Thread: several threads may call `get` at once.
    Source: org.apache.kafka.common.config.provider.ConfigProvider, KIP-297.
    """

    def configure(self, configs: Mapping[str, str]) -> None:
        """Receives its settings, without the prefix `config.providers.<name>.param.`; called once, before `get`."""

    @abstractmethod
    def get(self, path: str, keys: Collection[str] | None = None) -> ConfigData:
        """The values at a path: those of `keys` that exist, or all values if `keys` is None.

        Raises:
            ConfigException: The path cannot be read.
        """

    def close(self) -> None:
        """Releases the provider's resources; called once at the end."""


class _PathConfigProvider(ConfigProvider):
    """A provider that reads from paths, which the setting `allowed.paths` limits."""

    def __init__(self) -> None:
        self._allowed: Sequence[Path] | None = None

    def configure(self, configs: Mapping[str, str]) -> None:
        """Reads `allowed.paths`: absolute, existing paths separated by commas; empty allows every path."""
        setting = configs.get(ALLOWED_PATHS)
        if setting:
            self._allowed = [_checked(Path(os.path.normpath(part.strip()))) for part in setting.split(",")]

    def _resolve(self, path: str) -> Path | None:
        """The path to read, with `..` and links resolved; None if it is empty or not allowed, which is logged."""
        if not path or "\0" in path:
            return None
        if self._allowed is None:
            return Path(path)
        # An allowed path may itself be a link, which mounted secrets replace while the worker runs.
        real = Path(os.path.realpath(path))
        if any(real.is_relative_to(os.path.realpath(allowed)) for allowed in self._allowed):
            return real
        _log.warning("The path %s is not below allowed.paths and is not read; its placeholders have no value", path)
        return None


class FileConfigProvider(_PathConfigProvider):
    """Values from Java properties files: `${file:/path/to/secrets.properties:key}`.

    The setting `allowed.paths` limits which files may be read.

    Source: org.apache.kafka.common.config.provider.FileConfigProvider.
    """

    def get(self, path: str, keys: Collection[str] | None = None) -> ConfigData:
        """Reads the file at this path."""
        allowed = self._resolve(path)
        if allowed is None:
            return ConfigData({})
        if _is_endless(allowed):
            raise ConfigException(f"Could not read properties from file {path}: it is a device, pipe or socket")
        return ConfigData(_only(load_properties(allowed), keys))


class DirectoryConfigProvider(_PathConfigProvider):
    """Values that are whole files, as mounted secrets are: `${dir:/path/to/secrets:file-name}`.

    The content is UTF-8 and is not trimmed. The setting `allowed.paths` limits which directories may be read.

    Source: org.apache.kafka.common.config.provider.DirectoryConfigProvider.
    """

    def get(self, path: str, keys: Collection[str] | None = None) -> ConfigData:
        """Reads all regular files directly in this directory, or only the named ones."""
        directory = self._resolve(path)
        if directory is None:
            return ConfigData({})
        if not os.path.isdir(directory):
            _log.warning("The path %s is not a directory; its placeholders have no value", path)
            return ConfigData({})
        try:
            files = [file for file in directory.iterdir() if (keys is None or file.name in keys) and file.is_file()]
        except OSError as error:
            raise ConfigException(f"Could not list directory {path}: {error.strerror or error}") from error
        # A link in the directory may lead out of the allowed paths.
        return ConfigData({file.name: _content(file) for file in files if self._resolve(str(file)) is not None})


class EnvVarConfigProvider(ConfigProvider):
    """Values from the environment of the worker's process: `${env:NAME}`.

    The setting `allowlist.pattern`, a regular expression, limits the names.

    Args:
        environment: Replaces the process's own environment.

    Source: org.apache.kafka.common.config.provider.EnvVarConfigProvider.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._all = dict(os.environ if environment is None else environment)
        self._visible = self._all

    def configure(self, configs: Mapping[str, str]) -> None:
        """Reads `allowlist.pattern`."""
        pattern = configs.get(ALLOWLIST_PATTERN)
        if pattern is not None:
            allowed = compile_java(pattern, name=ALLOWLIST_PATTERN, what="Syntax error in regular expression")
            try:
                self._visible = {name: value for name, value in self._all.items() if allowed.matches(name)}
            except PatternTimeoutException as error:
                raise ConfigException(ALLOWLIST_PATTERN, pattern, str(error)) from error

    def get(self, path: str, keys: Collection[str] | None = None) -> ConfigData:
        """Reads variables; the path is ignored."""
        if path:
            raise ConfigException(f"Path is not supported for EnvVarConfigProvider, invalid value '{path}'")
        return ConfigData(_only(self._visible, keys))


def _checked(path: Path) -> Path:
    if not path.is_absolute():
        raise ConfigException(f"Path {path} is not absolute")
    if not path.exists():
        raise ConfigException(f"Path {path} does not exist")
    return path


@dataclass(frozen=True)
class Unresolved:
    """A placeholder that cannot be resolved.

    Attributes:
        setting: The setting that contains it.
        placeholder: Its text.
        known: True if its provider is configured; otherwise it may not be a placeholder at all.
        reason: The reason why it has no value.
    """

    setting: str
    placeholder: str
    known: bool
    reason: str

    def __str__(self) -> str:
        return f"{self.placeholder} in the setting {self.setting} is not resolved: {self.reason}"


@dataclass(frozen=True)
class TransformedConfig:
    """A configuration with its placeholders resolved.

    Attributes:
        data: The configuration.
        ttls: The milliseconds after which to resolve again, for each path whose provider returned a time.
        unresolved: The placeholders that were not replaced.
    """

    data: dict[str, str]
    ttls: Mapping[str, int] = field(default_factory=dict)
    unresolved: Sequence[Unresolved] = ()

    def complete(self) -> dict[str, str]:
        """The configuration, for a connector or task that is about to start with it.

        A placeholder of an unknown provider stays in the text: it may mean something to the connector.

        Raises:
            ConfigException: A provider has no value for a placeholder; the message names all such placeholders.
        """
        missing = [str(one) for one in self.unresolved if one.known]
        if missing:
            raise ConfigException(". ".join(missing))
        return self.data


@dataclass(frozen=True)
class Placeholder:
    """A placeholder `${provider:[path:]key}` in a text.

    Attributes:
        start: Its position in the text.
        text: The whole placeholder.
        path: The path, or None.
    """

    start: int
    text: str
    provider: str
    path: str | None
    key: str


def placeholders(text: str) -> Iterator[Placeholder]:
    """The placeholders in a text, in order; unlike Java's expression it takes linear time.

    Source: org.apache.kafka.common.config.ConfigTransformer.DEFAULT_PATTERN.

    >>> [(one.provider, one.path, one.key) for one in placeholders("${env:A} ${no} ${file:/p:k:l}")]
    [('env', None, 'A'), ('file', '/p', 'k:l')]
    """
    start = text.find("${")
    while start >= 0 and (end := text.find("}", start)) >= 0:
        provider, colon, rest = text[start + 2 : end].partition(":")
        if colon:
            path, second, key = rest.partition(":")
            yield Placeholder(start, text[start : end + 1], provider, path if second else None, key if second else path)
        start = text.find("${", end)


class ConfigTransformer:
    """Replaces the placeholders `${provider:[path:]key}` in the values of a configuration.

    Each path is read once for a configuration. Unknown providers and keys leave the placeholder as it is
    (`TransformedConfig.complete` rejects unknown keys), and inserted values are not scanned for placeholders.

    Args:
        providers: The configured providers, by the name that placeholders use.

    Source: org.apache.kafka.common.config.ConfigTransformer.

    >>> transformer = ConfigTransformer({"env": EnvVarConfigProvider({"USER": "ann"})})
    >>> transformer.transform({"a": "<${env:USER}>", "b": "${env:GONE} ${vault:x:y}"})
    {'a': '<ann>', 'b': '${env:GONE} ${vault:x:y}'}
    """

    def __init__(self, providers: Mapping[str, ConfigProvider]) -> None:
        self._providers = dict(providers)

    def transform(self, config: Mapping[str, str]) -> dict[str, str]:
        """The configuration with its placeholders resolved.

        Raises:
            ConfigException: A provider failed to read a path.
        """
        return self.resolve(config).data

    def resolve(self, config: Mapping[str, str]) -> TransformedConfig:
        """As `transform`, and also returns the unresolved placeholders and the times to resolve again."""
        found: dict[tuple[str, str], Mapping[str, str]] = {}
        ttls: dict[str, int] = {}
        for (name, path), keys in self._wanted(config).items():
            answer = self._providers[name].get(path, keys)
            found[name, path] = answer.data
            if answer.ttl is not None and answer.ttl >= 0:
                ttls[path] = answer.ttl

        unresolved: list[Unresolved] = []

        def filled(setting: str, value: str | None) -> Any:
            if value is None:
                return None
            parts, end = [], 0
            for one in placeholders(value):
                values = found.get((one.provider, one.path or ""), {})
                if one.key not in values:
                    unresolved.append(self._left(setting, one))
                parts += [value[end : one.start], values.get(one.key, one.text)]
                end = one.start + len(one.text)
            return "".join((*parts, value[end:])) if parts else value

        return TransformedConfig({key: filled(key, value) for key, value in config.items()}, ttls, unresolved)

    def _left(self, setting: str, placeholder: Placeholder) -> Unresolved:
        name, path, key = placeholder.provider, placeholder.path, placeholder.key
        provider = self._providers.get(name)
        if provider is None:
            there = f"there are {', '.join(sorted(self._providers))}" if self._providers else "there are none"
            reason = f"the worker has no config provider {name} (config.providers; {there})"
        else:
            at = f" at {path}" if path else ""
            reason = f"the config provider {name} ({type(provider).__name__}) has no value {key!r}{at}"
        return Unresolved(setting, placeholder.text, provider is not None, reason)

    def close(self) -> None:
        """Closes every provider."""
        for provider in self._providers.values():
            provider.close()

    def _wanted(self, config: Mapping[str, str]) -> dict[tuple[str, str], set[str]]:
        wanted: dict[tuple[str, str], set[str]] = {}
        for value in config.values():
            # A null setting arrives here as None.
            for one in placeholders(value) if isinstance(value, str) else ():
                if one.provider in self._providers:
                    wanted.setdefault((one.provider, one.path or ""), set()).add(one.key)
        return wanted


def _only(values: Mapping[str, str], keys: Collection[str] | None) -> dict[str, str]:
    return dict(values) if keys is None else {key: values[key] for key in keys if key in values}


def _is_endless(file: Path) -> bool:
    """True if reading a path might never end."""
    try:
        mode = file.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _content(file: Path) -> str:
    try:
        return read_limited(file).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigException(f"Could not read file {file.name} in {file.parent}: {error}") from error
