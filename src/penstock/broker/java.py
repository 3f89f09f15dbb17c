"""Finding a Java that can run Kafka.

Main function: `find_java`.

Thread: any.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import ConnectException

MINIMUM_VERSION = 17


class JavaNotFoundException(ConnectException):
    """No Java, or one too old for Kafka 4.3: the message says what to install."""


def parse_version(text: str) -> int | None:
    """The feature release in the output of `java -version`, or None.

    >>> parse_version('openjdk version "17.0.15" 2025-04-15')
    17
    >>> parse_version('java version "1.8.0_392"')
    8
    """
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None


def java_command(environment: Mapping[str, str]) -> str | None:
    """`JAVA_HOME/bin/java` when `JAVA_HOME` is set, else the `java` on the path; None when it is not there.

    It is neither run nor asked for its version, see `find_java`.

    Args:
        environment: of the process that is to run it.
    """
    home = environment.get("JAVA_HOME", "")
    if home:
        return shutil.which(str(Path(home) / "bin" / "java"))
    return shutil.which("java", path=environment.get("PATH", os.defpath))


def find_java(environment: Mapping[str, str] | None = None) -> Path:
    """The `java` command: `JAVA_HOME/bin/java` when `JAVA_HOME` is set, else the one on the path.

    Args:
        environment: the process environment when None.

    Raises:
        JavaNotFoundException: there is none, it does not run, or it is older than 17.
    """
    environment = os.environ if environment is None else environment
    command = java_command(environment)
    if environment.get("JAVA_HOME"):
        origin = "JAVA_HOME is set, but it has no bin/java that can be executed"
    else:
        origin = "there is no java command on the PATH"
    advice = f"install a Java runtime, version {MINIMUM_VERSION} or later, or set JAVA_HOME to one"
    if command is None:
        raise JavaNotFoundException(f"Kafka needs Java {MINIMUM_VERSION} or later: {origin}; {advice}")
    try:
        shown = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaNotFoundException(f"The Java command {command} does not run: {error}; {advice}") from error
    version = parse_version(shown)
    if version is None or version < MINIMUM_VERSION:
        found = "of an unknown version" if version is None else f"version {version}"
        raise JavaNotFoundException(f"Kafka needs Java {MINIMUM_VERSION} or later, but {command} is {found}; {advice}")
    return Path(command)
