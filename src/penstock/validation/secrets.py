"""Hides secrets in what users are shown, and takes what they were shown for the secret when they send it back.

Main functions: ``masked``, ``unmasked``, ``check_known``, ``without_provided``. Pure; any thread.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from penstock.config.values import HIDDEN
from penstock.errors import BadRequestException

_REFERENCE: Final = re.compile(r"\$\{[^}]*\}")


def masked(config: Mapping[str, str], secrets: Collection[str]) -> dict[str, str]:
    """A configuration that may be shown. A reference to a value kept elsewhere is no secret itself.

    >>> masked({"user": "u", "password": "p", "token": "${file:/t:k}"}, {"password", "token"})
    {'user': 'u', 'password': '[hidden]', 'token': '${file:/t:k}'}
    """
    if not secrets:
        return dict(config)
    return {
        name: HIDDEN if name in secrets and value and not _REFERENCE.fullmatch(value) else value
        for name, value in config.items()
    }


def unmasked(
    config: Mapping[str, str | None], before: Mapping[str, str], secrets: Collection[str]
) -> dict[str, str | None]:
    """A configuration in which a secret that was sent back as it was shown has its value again.

    >>> unmasked({"user": "u", "password": "[hidden]"}, {"password": "p"}, {"password"})
    {'user': 'u', 'password': 'p'}
    """
    return {
        name: before[name] if value == HIDDEN and name in secrets and name in before else value
        for name, value in config.items()
    }


def without_provided(
    messages: Sequence[str], config: Mapping[str, str | None], resolved: Mapping[str, str | None]
) -> list[str]:
    """Messages in which the references of a configuration stand for the values that they have.

    Args:
        messages: What is to be shown.
        config: As given.
        resolved: With its references resolved.

    >>> given, found = {"count": "<${env:N}>", "b": "2"}, {"count": "<two>", "b": "2"}
    >>> without_provided(["Invalid value <two> for count", "two, not 2, and twofold"], given, found)
    ['Invalid value <${env:N}> for count', '${env:N}, not 2, and twofold']
    """
    references: dict[str, str] = {}
    for name, text in config.items():
        value = resolved.get(name)
        if text is None or value is None or value == text:
            continue
        references[value] = text
        around = map(re.escape, _REFERENCE.split(text))
        if (parts := re.fullmatch("(.*?)".join(around), value, re.DOTALL)) is not None:
            references |= dict(zip(parts.groups(), _REFERENCE.findall(text), strict=True))
    references.pop("", None)
    if not references:
        return list(messages)
    longest = sorted(references, key=len, reverse=True)
    values = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest))})(?!\w)")
    return [values.sub(lambda found: references[found[0]], message) for message in messages]


def check_known(config: Mapping[str, str], secrets: Collection[str]) -> None:
    """Refuses what stands for a secret where there is none that it could stand for.

    Raises:
        BadRequestException: such a value would be taken for the secret itself.
    """
    unknown = sorted(name for name in secrets if config.get(name) == HIDDEN)
    if unknown:
        raise BadRequestException(
            f"{HIDDEN} stands for the value that a connector has already, and this one has none for "
            f"{', '.join(unknown)}: give the value itself"
        )
