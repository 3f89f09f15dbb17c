"""Values and checks of settings that several connectors have: ``OnNull``, ``TIME_ZONE``. Pure; any thread."""

from __future__ import annotations

from enum import Enum
from typing import Final
from zoneinfo import ZoneInfo

from penstock.config import LambdaValidator
from penstock.errors import ConfigException


class OnNull(Enum):
    """The fate of records whose value is null."""

    IGNORE = "ignore"
    FAIL = "fail"


def _check_zone(name: str, value: object) -> None:
    try:
        ZoneInfo(str(value))
    except (KeyError, ValueError, OSError) as error:
        raise ConfigException(
            name, value, "is no time zone that this system knows; write a name such as UTC or Europe/Berlin"
        ) from error


TIME_ZONE: Final = LambdaValidator(_check_zone, "the name of a time zone")
