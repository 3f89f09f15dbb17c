"""The requirements of a program in Java: a Java, jars in a cache, archives of its classes, and free TCP ports.

``resolve_jars`` fetches jars with the Ivy that PySpark carries: Ivy's own command line runs in a short JVM. The jars of
one list of coordinates lie in one directory of the cache that appears at once when it is complete. A JVM maps an
archive into memory instead of reading each class from its jars, and starts in about half the time; a JVM that finds no
archive, or one of another version, reads the jars.

Java Kafka Connect, for comparison, starts from ``CONNECT_COORDINATES`` with everything on the class path; the worker's
properties need no ``plugin.path`` then.

Environment: ``PENSTOCK_CACHE`` moves the cache, ``PENSTOCK_MAVEN_REPOSITORY`` names a mirror of Maven Central.

Thread: any; processes that need the same jars wait for each other.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import random
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from xml.sax.saxutils import quoteattr

from penstock.errors import ConnectException

MINIMUM_VERSION = 17


class JavaNotFoundException(ConnectException):
    """No Java, or one too old for Kafka 4.3: the message names the version to install."""


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
    """`JAVA_HOME/bin/java` when `JAVA_HOME` is set, else the `java` on the path; None if there is none.

    This function does not run it; `find_java` checks its version.
    """
    home = environment.get("JAVA_HOME", "")
    if home:
        return shutil.which(str(Path(home) / "bin" / "java"))
    return shutil.which("java", path=environment.get("PATH", os.defpath))


def find_java(environment: Mapping[str, str] | None = None) -> Path:
    """The `java` command: `JAVA_HOME/bin/java` when `JAVA_HOME` is set, else the one on the path.

    Args:
        environment: the process environment when None.
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


_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
#: Most well-known ports are lower.
_LOWEST = 10_000
_HIGHEST = 65_535
#: With fewer ports outside the system's range, callers would often choose the same one.
_ENOUGH = 1_000
_TRIES = 50
_CHANCE = random.SystemRandom()
#: The ports that this process has returned before: their servers may not have started yet.
_given_before: set[int] = set()


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Find ports without a listener, all different.

    They are outside the range from which the system gives each outgoing connection a port, so that no connection takes
    one between the answer and the use, or while a server restarts. Another server may still take one;
    each call in a process returns different ports.
    """
    candidates = port_candidates(_given_to_connections())
    with ExitStack() as held:
        return [_bind(held.enter_context(socket.socket()), host, candidates) for _ in range(count)]


def free_port(host: str = "127.0.0.1") -> int:
    """One port without a listener (see `free_ports`)."""
    return free_ports(1, host)[0]


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """True if a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        # Lingering connections of an earlier server do not prevent a new one.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError:
            return False
        return True


def port_candidates(given: tuple[int, int] | None) -> range:
    """The larger range of ports that the system gives to no connection; empty if that is small.

    >>> port_candidates((32768, 60999)), port_candidates((10001, 20000)), port_candidates((1024, 65535))
    (range(10000, 32768), range(20001, 65536), range(0, 0))

    Args:
        given: the first and the last port that the system gives to connections; None if that is not known.
    """
    if given is None:
        return range(0)
    first, last = given
    below, above = range(_LOWEST, max(first, _LOWEST)), range(max(last + 1, _LOWEST), _HIGHEST + 1)
    larger = max(below, above, key=len)
    return larger if len(larger) >= _ENOUGH else range(0)


def _given_to_connections() -> tuple[int, int] | None:
    try:
        first, last = map(int, _RANGE.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return None
    return first, last


def _bind(listener: socket.socket, host: str, candidates: range) -> int:
    """Binds a socket to one of the candidates that is free; the system chooses if none is found. Returns the port."""
    for _ in range(_TRIES if candidates else 0):
        port = _CHANCE.choice(candidates)
        if port in _given_before:
            continue
        try:
            listener.bind((host, port))
        except OSError:
            continue
        _given_before.add(port)
        return port
    listener.bind((host, 0))
    return int(listener.getsockname()[1])


KAFKA_VERSION = "4.3.0"
_LOGGING = "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"
BROKER_COORDINATES = (f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}", _LOGGING)
CONNECT_COORDINATES = (
    f"org.apache.kafka:connect-runtime:{KAFKA_VERSION}",
    f"org.apache.kafka:connect-file:{KAFKA_VERSION}",
    f"org.apache.kafka:connect-json:{KAFKA_VERSION}",
    f"org.apache.kafka:connect-transforms:{KAFKA_VERSION}",
    _LOGGING,
)
_TIMEOUT_S = 900


class JarsNotFoundException(ConnectException):
    """The jars are not in the cache and could not be fetched: the message says why."""


def cache_directory(environment: Mapping[str, str] | None = None) -> Path:
    """`PENSTOCK_CACHE`, else `penstock` below the user's cache directory."""
    environment = os.environ if environment is None else environment
    if chosen := environment.get("PENSTOCK_CACHE"):
        return Path(chosen)
    base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "penstock"


def jar_directory(coordinates: Sequence[str], cache: Path) -> Path:
    """Returns the directory of the jars of these coordinates, once complete; their order does not matter."""
    lead = coordinates[0].split(":")
    digest = hashlib.sha256("\n".join(sorted(coordinates)).encode()).hexdigest()[:12]
    return cache / "jars" / f"{lead[1]}-{lead[2]}-{digest}"


def resolve_jars(coordinates: Sequence[str], cache: Path | None = None) -> list[Path]:
    """The jars of the coordinates and of all they need at run time, fetched on first use.

    Args:
        coordinates: `group:artifact:version`, at least one.
        cache: the directory to keep them in; `cache_directory()` when None.
    """
    if not coordinates or any(len([part for part in text.split(":") if part]) != 3 for text in coordinates):
        raise ValueError(f"expected coordinates of the form group:artifact:version, got {list(coordinates)}")
    cache = cache_directory() if cache is None else cache
    target = jar_directory(coordinates, cache)
    if not target.is_dir():
        java = find_java()
        try:
            with _lock(cache / "resolve.lock"):
                if not target.is_dir():
                    _fetch(java, coordinates, cache, target)
        except OSError as error:
            raise JarsNotFoundException(
                f"The jar cache {cache} cannot be written: {error}; make it writable or set PENSTOCK_CACHE"
            ) from error
    return sorted(target.glob("*.jar"))


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _fetch(java: Path, coordinates: Sequence[str], cache: Path, target: Path) -> None:
    """Resolves into a temporary directory next to the target, then renames it: a failed run leaves no files."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".resolve-", dir=target.parent) as scratch:
        work = Path(scratch)
        (work / "settings.xml").write_text(ivy_settings(cache / "ivy", os.environ.get("PENSTOCK_MAVEN_REPOSITORY")))
        (work / "module.xml").write_text(ivy_module(coordinates))
        jars = work / "jars"
        jars.mkdir()
        output = _run_ivy(java, work, jars, coordinates)
        if not any(jars.glob("*.jar")):
            raise JarsNotFoundException(f"Ivy found no jars for {', '.join(coordinates)}:\n{_tail(output)}")
        shutil.move(jars, target)


def _run_ivy(java: Path, work: Path, jars: Path, coordinates: Sequence[str]) -> str:
    command = [
        *(str(java), "-Xmx256m", "-cp", str(_ivy_jar()), "org.apache.ivy.Main"),
        *("-settings", str(work / "settings.xml"), "-ivy", str(work / "module.xml")),
        *("-types", "jar", "bundle"),
        *("-retrieve", f"{jars}/[organisation]_[artifact]-[revision](-[classifier]).[ext]"),
    ]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_TIMEOUT_S, cwd=work)
    except subprocess.TimeoutExpired as error:
        raise JarsNotFoundException(
            f"Fetching {', '.join(coordinates)} took longer than {_TIMEOUT_S} s; check the network and try again"
        ) from error
    output = done.stdout + done.stderr
    if done.returncode != 0:
        raise JarsNotFoundException(
            f"Fetching {', '.join(coordinates)} from Maven Central failed; check that this machine reaches the network "
            f"(once fetched, the jars are used from the cache), or set PENSTOCK_MAVEN_REPOSITORY to a mirror:\n"
            f"{_tail(output)}"
        )
    return output


def _ivy_jar() -> Path:
    import pyspark

    found = sorted((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise JarsNotFoundException("PySpark's installation has no Ivy jar; install the full pyspark package")
    return found[-1]


def ivy_settings(ivy_cache: Path, repository: str | None) -> str:
    """Ivy's settings: Maven Central (Ivy's own default root) or a mirror, and a download cache of our own."""
    root = f" root={quoteattr(repository.rstrip('/') + '/')}" if repository else ""
    return (
        '<ivysettings><settings defaultResolver="central"/>'
        f"<caches defaultCacheDir={quoteattr(str(ivy_cache))}/>"
        f'<resolvers><ibiblio name="central" m2compatible="true" usepoms="true"{root}/></resolvers></ivysettings>\n'
    )


def ivy_module(coordinates: Sequence[str]) -> str:
    """An Ivy module that depends on the coordinates as a Maven project's run time would."""
    dependencies = []
    for text in coordinates:
        group, artifact, version = text.split(":")
        dependencies.append(
            f"<dependency org={quoteattr(group)} name={quoteattr(artifact)} rev={quoteattr(version)} "
            'conf="default->default(compile),runtime"/>'
        )
    return (
        '<ivy-module version="2.0"><info organisation="penstock" module="jars"/>'
        f'<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(dependencies)}</dependencies></ivy-module>\n"
    )


def _tail(output: str, lines: int = 15) -> str:
    """The lines of Ivy's output that describe the failure."""
    telling = [
        line for line in output.splitlines() if line.strip() and "downloading" not in line and "...." not in line
    ]
    return "\n".join(telling[-lines:])


class ArchiveFailedException(ConnectException):
    """An archive could not be made: the message says why."""


def archive_file(program: str, java: Path, parts: Sequence[str], environment: Mapping[str, str] | None = None) -> Path:
    """The archive of a program's classes in the cache; it may not exist yet.

    Args:
        java: the Java that runs the program; another build of it has another archive.
        environment: None for the process environment.
    """
    java = java.resolve()
    text = "\n".join((str(java), str(java.stat().st_mtime_ns), *parts))
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return cache_directory(environment) / f"{program}-{digest}.jsa"


def kafka_archive(java: Path) -> Path:
    """The archive of the embedded broker's classes; it may not exist yet."""
    jars = jar_directory(BROKER_COORDINATES, cache_directory())
    return archive_file(f"kafka-classes-{KAFKA_VERSION}", java, [str(jars)])


def sharing(archive: Path | None) -> list[str]:
    """The JVM's options that use an archive; empty if it does not exist."""
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"] if archive is not None and archive.is_file() else []


def make_archive(target: Path, record: Callable[[Path], str]) -> Path:
    """Makes an archive; replaces an existing one.

    Args:
        record: Runs the program to its end, which writes its classes to the given path; returns the program's output,
            for the error message.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".classes-", dir=target.parent) as scratch:
            made = Path(scratch, "archive.jsa")
            said = record(made)
            if not made.is_file():
                raise ArchiveFailedException(f"The classes of {target.stem} could not be archived: {said[-500:]}")
            made.replace(target)
    except OSError as error:
        raise ArchiveFailedException(f"Classes could not be archived as {target}: {error}") from error
    return target
