"""Reads the connector files of the command line: Java properties, or JSON as in ``POST /connectors`` or flat.

The answer of ``GET /connectors/{name}`` will do as well: fields that are not known are passed over, as in Java.

Main types: ``ConnectorFile``; ``read_connector_files``. Pure but for reading the files. ``read_given`` and
``read_json`` read other files that commands name.

Source: org.apache.kafka.connect.cli.ConnectStandalone.parseConnectorConfigurationFile.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.config.parse import java_trim
from penstock.config.properties import parse_properties
from penstock.errors import ConfigException
from penstock.model import TargetState

log = logging.getLogger(__name__)

_REQUEST_FIELDS = {"name", "config", "initial_state"}
#: Fields of ``GET /connectors/{name}`` in addition to these: a saved answer can be used as a file.
_ANSWER_FIELDS = {"tasks", "type"}


@dataclass(frozen=True)
class ConnectorFile:
    """A connector that the command line asks for."""

    path: str
    name: str
    config: Mapping[str, str]
    target: TargetState = TargetState.STARTED


def read_connector_files(paths: Sequence[str]) -> list[ConnectorFile]:
    """Reads all files.

    Raises:
        ConfigException: one cannot be read or is wrong, or two have the same name; says which and why.
    """
    files: list[ConnectorFile] = []
    by_name: dict[str, str] = {}
    for path in paths:
        found = parse_connector_file(path, read_text(path))
        if found.name in by_name:
            raise ConfigException(
                f"The connector files {by_name[found.name]} and {path} both have name={found.name}; "
                "every connector needs a name of its own"
            )
        by_name[found.name] = path
        files.append(found)
    return files


def read_text(path: str) -> str:
    """The text of a file, UTF-8.

    Raises:
        ConfigException: it cannot be read.
    """
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigException(f"The file {path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigException(f"The file {path} is not UTF-8 text: {error}") from error


def read_given(file: str) -> str:
    """The text of a file that the command line names; ``-`` is standard input.

    Raises:
        ConfigException: it cannot be read.
    """
    return sys.stdin.read() if file == "-" else read_text(file)


def read_json(file: str) -> Any:
    """The JSON in a file that the command line names; ``-`` is standard input.

    Raises:
        ConfigException: it cannot be read, or is not JSON.
    """
    text = read_given(file)
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigException(f"{file} is not valid JSON: {error}") from error


def parse_connector_file(path: str, text: str) -> ConnectorFile:
    """A connector file's content.

    Raises:
        ConfigException: it is wrong.

    >>> parse_connector_file("a.properties", "name=a").config
    {'name': 'a'}
    >>> parse_connector_file("a.json", '{"name": "a", "config": {"tasks.max": 2}}').config
    {'tasks.max': '2', 'name': 'a'}
    """
    if text.lstrip().startswith("{") or path.endswith(".json"):
        return _from_json(path, text)
    try:
        config = parse_properties(text)
    except ConfigException as error:
        raise ConfigException(f"The connector file {path} is not a properties file: {error}") from error
    return _named(path, config, None)


def _from_json(path: str, text: str) -> ConnectorFile:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ConfigException(f"The connector file {path} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ConfigException(f"The connector file {path} must hold a JSON object")
    config = content.get("config")
    if not isinstance(config, dict):
        return _named(path, _texts(path, content), None)
    unknown = sorted(set(content) - _REQUEST_FIELDS - _ANSWER_FIELDS)
    if unknown:
        log.warning(
            "The connector file %s has fields next to config that are not used: %s; name, config and "
            "initial_state are known",
            path,
            ", ".join(unknown),
        )
    name, settings = content.get("name"), _texts(path, config)
    if name is not None and settings.setdefault("name", str(name)) != str(name):
        raise ConfigException(f"The connector file {path} has two names: {name}, and {settings['name']} in its config")
    try:
        target = TargetState.from_initial_state(content.get("initial_state"))
    except (ValueError, AttributeError) as error:
        raise ConfigException(f"The connector file {path}: {error}") from error
    return _named(path, settings, target)


def _texts(path: str, config: Mapping[str, object]) -> dict[str, str]:
    texts = {}
    for key, value in config.items():
        if value is None:
            continue  # as if it were not set
        if isinstance(value, (dict, list)):
            raise ConfigException(f"The connector file {path}: the value of {key} must be a text, number or boolean")
        texts[key] = value if isinstance(value, str) else json.dumps(value)
    return texts


def _named(path: str, config: Mapping[str, str], target: TargetState | None) -> ConnectorFile:
    name = java_trim(config.get("name", ""))
    if not name:
        raise ConfigException(f"The connector file {path} has no name; add a line name=...")
    return ConnectorFile(path, name, {**config, "name": name}, target or TargetState.STARTED)
