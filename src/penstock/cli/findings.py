"""What a worker says about a configuration or a request, in the words of the command line.

Main types: ``Fault``. Main functions: ``faults``, ``warnings``, ``in_commands``. Pure; any thread.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.config.values import HIDDEN

#: What is said of a setting whose value could not be read, behind the error that says so.
_NULL: Final = re.compile(r"Invalid value null for configuration |Missing required configuration ")
_REQUEST: Final = re.compile(r"issuing a '(?:PUT|POST)' request to the '/connectors/([^']*)/(\w+)' endpoint")
_LISTED_ELSEWHERE: Final = re.compile(r"\s*You can also find the above list of errors at the endpoint `[^`]*`")


@dataclass(frozen=True)
class Fault:
    """What is wrong with one setting.

    Attributes:
        name: The setting.
        value: What it was set to; None when it was not. That of a secret is hidden.
        error: Why that cannot be.
    """

    name: str
    value: str | None
    error: str


def faults(found: Mapping[str, Any], config: Mapping[str, str]) -> list[Fault]:
    """The faults in a validation's answer: one for each setting.

    Args:
        found: The answer.
        config: What was validated.
    """
    listed = []
    for entry in found["configs"]:
        value, definition = entry["value"], entry["definition"] or {}
        name, errors = value["name"], list(dict.fromkeys(value["errors"]))
        # A value that cannot be read is null for whoever looks at it next: that is no other fault.
        errors = [error for error in errors if not _NULL.match(error)] or errors[:1]
        if not errors:
            continue
        given = config.get(name, value["value"])
        secret = definition.get("type") == "PASSWORD"
        text = "; ".join(errors)
        if secret and given:
            text, given = text.replace(given, HIDDEN), HIDDEN
        listed.append(Fault(name, given, text))
    return listed


def warnings(found: Mapping[str, Any]) -> Sequence[str]:
    """The warnings in a validation's answer."""
    return [f"{one['name']}: {one['message']}" for one in found.get("warnings", ())]


def in_commands(message: str) -> str:
    """An error of the worker with commands for the requests that it advises.

    >>> in_commands("Stop it by issuing a 'PUT' request to the '/connectors/a b/stop' endpoint")
    "Stop it by running `penstock connectors stop 'a b'`"
    """
    message = _LISTED_ELSEWHERE.sub("", message)
    return _REQUEST.sub(lambda found: f"running `penstock connectors {found[2]} {shlex.quote(found[1])}`", message)
