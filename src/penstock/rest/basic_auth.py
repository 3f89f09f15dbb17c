"""The stock REST extension: requests need a user and password of a file.

Main type: ``BasicAuthExtension``. The worker's setting ``rest.basic.auth.file`` names a file of ``user=password``
lines, and is enough to turn it on. Without it the file is named where Java names it: ``KAFKA_OPTS`` has
``-Djava.security.auth.login.config=FILE``, and the entry ``KafkaConnect`` of that JAAS file names the users' file.
``rest.basic.auth.read.only.users`` names those who may look, but change and run nothing.
Files are read once, at the start of the worker.

Source: org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import os
import re
import shlex
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.api.rest import RestExtension, RestExtensionContext, RestRequest, RestResponse
from penstock.config.properties import parse_properties
from penstock.errors import ConfigException
from penstock.rest.errors import error_body

log = logging.getLogger(__name__)

#: The worker's setting that names the users' file.
USERS_FILE: Final = "rest.basic.auth.file"
#: The worker's setting that names the users who may only read.
READ_ONLY: Final = "rest.basic.auth.read.only.users"
JAVA_NAME: Final = "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
ENTRY: Final = "KafkaConnect"

_OPTION: Final = "-Djava.security.auth.login.config="
_COMMENT: Final = re.compile(r"/\*.*?\*/|//[^\n]*|(?m:^\s*#[^\n]*)", re.DOTALL)
_FILE_OPTION: Final = re.compile(r"""\bfile\s*=\s*(?:"([^"]*)"|([^\s;]+))""")
#: What workers ask of each other; it carries a signature of its own.
_INTERNAL: Final = re.compile(r"(?:POST /connectors/[^/]+/tasks|PUT /connectors/[^/]+/fence)/?")
#: What changes nothing and runs no code with settings of the caller's.
_READING: Final = ("GET", "HEAD", "OPTIONS")
_REFUSED: Final = RestResponse(401, b"User cannot access the resource.", {"Content-Type": "application/json"})


class BasicAuthExtension(RestExtension):
    """Lets only known users pass.

    Args:
        environment: Where ``KAFKA_OPTS`` is.

    Attributes:
        guards_admin: Whether admin listeners of their own ask too; Java's way of naming the file leaves them open.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        self._passwords: dict[str, str] = {}
        self._read_only: frozenset[str] = frozenset()
        self.guards_admin = False

    def configure(self, configs: Mapping[str, str]) -> None:
        """Reads the users.

        Args:
            configs: The worker's settings.

        Raises:
            ConfigException: a file is missing or names no users, or a user who may only read is not among them.
        """
        own = configs.get(USERS_FILE, "").strip()
        self.guards_admin = bool(own)
        path = own or users_file(login_file(self._environment))
        self._passwords = read_users(path)
        self._read_only = frozenset(filter(None, map(str.strip, configs.get(READ_ONLY, "").split(","))))
        if unknown := sorted(self._read_only - self._passwords.keys()):
            # A misspelt name would leave the user who is meant with all rights.
            raise ConfigException(READ_ONLY, ", ".join(unknown), f"The file {path} has no such user")

    def register(self, context: RestExtensionContext) -> None:
        """Adds the filter."""
        context.add_filter(self.check)

    def check(self, request: RestRequest) -> RestResponse | None:
        """The refusal of a request, or None."""
        if _INTERNAL.fullmatch(f"{request.method} {request.path}"):
            return None
        user, _, password = _credentials(request.headers.get("authorization", "")).partition(":")
        expected = self._passwords.get(user)
        same = hmac.compare_digest((expected or "").encode(), password.encode())
        if expected is None or not same:
            return _REFUSED
        if user in self._read_only and request.method not in _READING:
            message = f"User {user} may only read ({READ_ONLY}): {request.method} {request.path} is not allowed"
            return RestResponse(403, error_body(403, message), {"Content-Type": "application/json"})
        return None


def login_file(environment: Mapping[str, str]) -> str:
    """The JAAS file that the environment names.

    >>> login_file({"KAFKA_OPTS": "-Xmx1g -Djava.security.auth.login.config=/etc/jaas.conf"})
    '/etc/jaas.conf'

    Raises:
        ConfigException: it names none.
    """
    for word in shlex.split(environment.get("KAFKA_OPTS", "")):
        if word.startswith(_OPTION):
            return word.removeprefix(_OPTION)
    raise ConfigException(
        f"The REST extension for basic authentication needs a file of user=password lines: name it in {USERS_FILE}, or "
        f"as Java does, with KAFKA_OPTS={_OPTION}FILE, where the entry {ENTRY} of that JAAS file names it"
    )


def users_file(path: str) -> str:
    """The file of users that the entry ``KafkaConnect`` of a JAAS file names.

    Raises:
        ConfigException: the JAAS file cannot be read, or there is no such entry.
    """
    text = _COMMENT.sub("", _read(path))
    entry = re.search(rf"\b{ENTRY}\s*\{{(.*?)\}}\s*;", text, re.DOTALL)
    if entry is None:
        raise ConfigException(f"The JAAS file {path} has no entry {ENTRY} {{ ... }};")
    option = _FILE_OPTION.search(entry[1])
    if option is None:
        raise ConfigException(f'The entry {ENTRY} of the JAAS file {path} has no option file="..."')
    return option[1] or option[2]


def read_users(path: str) -> dict[str, str]:
    """The users of a file of ``user=password`` lines, with their passwords; warns where everybody may read it.

    Raises:
        ConfigException: it cannot be read, or has no user.
    """
    users = parse_properties(_read(path))
    if not users:
        raise ConfigException(f"The file {path} has no user; write lines of the form user=password")
    if os.stat(path).st_mode & stat.S_IROTH:
        log.warning("Everybody on this machine may read %s, which holds passwords: chmod 600 %s", path, path)
    return users


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigException(f"The file {path} cannot be read: {error}") from error


def _credentials(header: str) -> str:
    scheme, _, encoded = header.strip().partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(encoded.strip(), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return ""
