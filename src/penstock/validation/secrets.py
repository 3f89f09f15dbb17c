"""Hides secrets in what users are shown, and takes what they were shown for the secret when they send it back.

Main functions: ``is_secret_name``, ``masked``, ``masked_tasks``, ``unmasked``, ``check_known``, ``redaction_of``. A
setting is a secret where its definition says so, where its name does, or where it was one before.
``penstock.validation.redaction`` takes values out of texts.

Pure; any thread.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Final

from penstock.config.secret_names import looks_secret
from penstock.config.values import HIDDEN
from penstock.errors import BadRequestException
from penstock.kafka.client_table import ClientKind, is_client_secret
from penstock.settings.plugin_classes import CONVERTERS
from penstock.validation.redaction import REFERENCE, Redaction, provided_values

_CLIENT: Final = re.compile(rf"(?:{'|'.join(kind.value for kind in ClientKind)})\.override\.")
_BELOW: Final = re.compile(rf"(?:transforms|predicates)\.[^.]*\.|topic\.creation\.[^.]*\.|(?:{'|'.join(CONVERTERS)})\.")
#: Longer names are not remembered.
_USUAL: Final = 200
#: A shorter value may be in a task's settings by chance.
_SHORTEST: Final = 4
_TELLING: Final = 8


def is_secret_name(name: str) -> bool:
    """True if a setting of a connector is a secret by its name, whichever class reads it, or none.

    >>> is_secret_name("admin.override.sasl.password"), is_secret_name("transforms.t.secret")
    (True, True)
    >>> is_secret_name("producer.override.acks"), is_secret_name("transforms.maskPassword.fields")
    (False, False)
    """
    return _remembered(name) if len(name) <= _USUAL else _is_secret_name(name)


def _is_secret_name(name: str) -> bool:
    client = _CLIENT.match(name)
    if client is not None:
        return is_client_secret(name[client.end() :])
    below = _BELOW.match(name)
    return looks_secret(name if below is None else name[below.end() :])


#: A thousand connectors that are listed have the same few names.
_remembered: Final = lru_cache(maxsize=4096)(_is_secret_name)


def masked(config: Mapping[str, str], secrets: Collection[str]) -> dict[str, str]:
    """A configuration that may be shown. A reference to a value kept elsewhere is no secret itself.

    >>> masked({"user": "u", "password": "p", "pin": "${file:/t:k}"}, {"pin"})
    {'user': 'u', 'password': '[hidden]', 'pin': '${file:/t:k}'}
    """
    return {name: HIDDEN if _hides(name, value, secrets) else value for name, value in config.items()}


def _hides(name: str, value: str, secrets: Collection[str]) -> bool:
    return bool(value) and (name in secrets or is_secret_name(name)) and REFERENCE.fullmatch(value) is None


def masked_tasks(
    tasks: Sequence[Mapping[str, str]], config: Mapping[str, str], secrets: Collection[str]
) -> list[dict[str, str]]:
    """Task configurations that may be shown; a connector may give its secrets to its tasks under other names.

    Args:
        tasks: Those of the tasks.
        config: The connector's.
        secrets: The connector's settings that must not be shown.

    >>> masked_tasks([{"url": "x?pw=hunter2", "n": "1"}], {"password": "hunter2"}, ())
    [{'url': 'x?pw=[hidden]', 'n': '1'}]
    """
    values = [value for name, value in config.items() if _hides(name, value, secrets) and len(value) >= _SHORTEST]
    if not values:
        return [masked(task, secrets) for task in tasks]
    # A short value counts where it is a word: it may be part of another by chance.
    found = re.compile(
        "|".join(
            re.escape(value) if len(value) >= _TELLING else rf"(?<!\w){re.escape(value)}(?!\w)"
            for value in sorted(values, key=len, reverse=True)
        )
    )
    shown = (masked(task, secrets) for task in tasks)
    return [{name: found.sub(HIDDEN, value) for name, value in task.items()} for task in shown]


def unmasked(
    config: Mapping[str, str | None], before: Mapping[str, str], secrets: Collection[str]
) -> dict[str, str | None]:
    """A configuration in which a secret that was sent back as it was shown has its value again.

    >>> unmasked({"user": "u", "password": "[hidden]"}, {"password": "p"}, ())
    {'user': 'u', 'password': 'p'}
    """
    return {
        name: before[name]
        if value == HIDDEN and name in before and (name in secrets or is_secret_name(name))
        else value
        for name, value in config.items()
    }


def check_known(config: Mapping[str, str], secrets: Collection[str]) -> None:
    """Refuses what stands for a secret where there is none that it could stand for.

    Raises:
        BadRequestException: such a value would be taken for the secret itself.
    """
    unknown = sorted(
        name for name, text in config.items() if text == HIDDEN and (name in secrets or is_secret_name(name))
    )
    if unknown:
        raise BadRequestException(
            f"{HIDDEN} stands for the value that a connector has already, and this one has none for "
            f"{', '.join(unknown)}: give the value itself"
        )


def redaction_of(
    config: Mapping[str, str | None], resolved: Mapping[str, str | None], secrets: Collection[str]
) -> Redaction:
    """Takes the secrets of a configuration, and what its placeholders stand for, out of what is told of it.

    Args:
        config: As given.
        resolved: With its placeholders resolved.
        secrets: The settings that are secrets, whatever their names say.
    """
    values = [text for name, text in config.items() if text and (name in secrets or is_secret_name(name))]
    return Redaction(provided_values(config, resolved), values)
