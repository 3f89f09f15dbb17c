"""Ships bulk work to Spark's executors, checks that they can do it, and packs Penstock for executors that lack it.

Thread: any on the worker; a Python worker's main thread on an executor.
"""

from __future__ import annotations

import importlib.metadata as metadata
import os
import pickle
import re
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyspark

import penstock
from penstock.errors import ConnectException
from penstock.pipeline.batch.batches import InstanceRecipe, TransformStage
from penstock.telemetry import no_probe

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from penstock.api import Converter, HeaderConverter
#: The name under which `spark.archives` unpacks the archive of ``penstock spark pack``.
ARCHIVE: Final = "penstock-executors"
#: The number of probes for each core of the executors.
_ASKED_EACH: Final = 2


@dataclass(frozen=True)
class TransformRecipe:
    """One entry of ``transforms``; see ``TransformStage``."""

    alias: str
    transformation: InstanceRecipe
    predicate: InstanceRecipe | None
    negate: bool


@dataclass(frozen=True)
class Parts:
    """The recipes of the parts of a task."""

    connector: str
    key: InstanceRecipe
    value: InstanceRecipe
    header: InstanceRecipe
    chain: tuple[TransformRecipe, ...] = ()

    def converters(self) -> tuple[Converter, Converter]:
        return self.key.make(True), self.value.make(False)

    def header_converter(self) -> HeaderConverter:
        made: HeaderConverter = self.header.make()
        return made

    def transforms(self) -> list[TransformStage]:
        return [
            TransformStage(
                one.alias,
                one.transformation.make(),
                None if one.predicate is None else one.predicate.make(),
                one.negate,
                one.transformation.config,
                None if one.predicate is None else one.predicate.config,
            )
            for one in self.chain
        ]


def probe_for_executors(probe: Callable[[str], None]) -> Callable[[str], None]:
    """The probe that goes to executors: the worker's, if that is made for it, as its attribute ``for_executors`` says.

    >>> probe_for_executors(lambda point: None) is no_probe
    True
    """
    return probe if getattr(probe, "for_executors", False) else no_probe


def packed(work: object, what: str) -> bytes:
    """Work as bytes."""
    try:
        return pickle.dumps(work, 5)
    except Exception as error:
        raise ConnectException(
            f"{what} cannot be sent to Spark's executors: {type(error).__name__}: {error}. Classes of transforms and "
            "converters have to be importable by their names; leave the one out, or return a SourceFrame, which the "
            "worker writes itself"
        ) from error


def shipped(payload: bytes, path: Sequence[str]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Packed work as a function of ``mapInArrow``.

    It is sent by value and imports its modules on the executor, so that an executor without Penstock can report that.

    Args:
        path: Where the worker's classes are imported from.
    """
    archive = ARCHIVE

    def work(batches: Any) -> Any:
        import os
        import pickle
        import sys

        sys.path[:0] = [one for one in (os.path.abspath(archive),) if os.path.isdir(one) and one not in sys.path]
        sys.path += [place for place in path if place not in sys.path]
        yield from pickle.loads(payload)(batches)

    return work


def own_path() -> list[str]:
    """The paths from which the worker's classes are imported."""
    return [os.path.abspath(place) for place in sys.path]


def probe_executors(session: SparkSession, payload: bytes, path: Sequence[str], cores: int) -> None:
    """Checks that executors have this Penstock, and can make the parts of the work.

    Args:
        cores: The least number of Python workers to check.

    Raises:
        ConnectException: An executor cannot do the work; the message names the remedy.
    """
    archive, version, python = ARCHIVE, penstock.__version__, list(sys.version_info[:2])
    spark = pyspark.__version__

    def ask(batches: Any) -> Any:
        import os
        import pickle
        import sys

        import pyarrow as pa

        sys.path[:0] = [one for one in (os.path.abspath(archive),) if os.path.isdir(one) and one not in sys.path]
        sys.path += [place for place in path if place not in sys.path]
        answer = ""
        try:
            import penstock as found
        except ImportError:
            answer = "have no Penstock"
        else:
            if found.__version__ != version:
                answer = f"have Penstock {found.__version__}"
        if not answer:
            try:
                pickle.loads(payload)
            except Exception as error:
                answer = f"cannot make what is sent to them ({type(error).__name__}: {error})"
        import pyspark as of_spark

        if of_spark.__version__ != spark:
            answer = f"have Spark {of_spark.__version__}, and the worker has {spark}"
        if list(sys.version_info[:2]) != python:
            answer = f"have Python {sys.version_info[0]}.{sys.version_info[1]}"
        for batch in batches:
            yield pa.RecordBatch.from_arrays([pa.array([answer] * batch.num_rows)], ["answer"])

    asked = max(1, cores * _ASKED_EACH)
    try:
        rows = session.range(0, asked, 1, asked).mapInArrow(ask, "answer string").distinct().collect()
    except Exception as error:
        raise ConnectException(cannot_run(str(error) or type(error).__name__, spark, python)) from error
    answers = sorted(row[0] for row in rows if row[0])
    if answers:
        raise ConnectException(refusal(answers, version, python))


#: Texts of Java's errors where the two ends have other classes of Spark.
_OTHER_SPARK: Final = re.compile(r"InvalidClassException|serialVersionUID|NoSuchMethodError|IncompatibleClassChange")


def cannot_run(text: str, spark: str, python: Sequence[int]) -> str:
    """The message about executors that have failed to run any Python.

    >>> print(cannot_run("No module named 'pyarrow'", "4.3.0", [3, 13]))
    Spark's executors cannot run Python for bulk work: No module named 'pyarrow'. They need Python 3.13 with PyArrow \
(spark.pyspark.python, spark.archives)
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if other := next((line for line in lines if _OTHER_SPARK.search(line)), None):
        return (
            f"Spark's executors have another version of Spark than the worker, which has {spark}: {other}. Install "
            f"Spark {spark} on the master and the Spark workers, or the version of PySpark that they have in the worker"
        )
    return (
        f"Spark's executors cannot run Python for bulk work: {lines[-1]}. They need Python {python[0]}.{python[1]} "
        "with PyArrow (spark.pyspark.python, spark.archives)"
    )


def refusal(answers: Sequence[str], version: str, python: Sequence[int]) -> str:
    """The message about executors that cannot do bulk work.

    >>> print(refusal(["have Penstock 0.1"], "0.2", [3, 13]))
    Executors of Spark have Penstock 0.1, and bulk work needs Penstock 0.2 on Python 3.13 there, with all classes of \
the connector's transforms and converters. Make an archive with 'penstock spark pack penstock-executors.tar.gz' and \
set spark.archives=/path/of/penstock-executors.tar.gz#penstock-executors in the worker's file, or install it there
    """
    return (
        f"Executors of Spark {', '.join(answers)}, and bulk work needs Penstock {version} on Python "
        f"{python[0]}.{python[1]} there, with all classes of the connector's transforms and converters. Make an "
        f"archive with 'penstock spark pack {ARCHIVE}.tar.gz' and set "
        f"spark.archives=/path/of/{ARCHIVE}.tar.gz#{ARCHIVE} in the worker's file, or install it there"
    )


#: Packages that executors have from Spark, or that only REST and commands use.
_LEFT_OUT: Final = frozenset({"penstock", "pyspark", "py4j", "fastapi", "uvicorn", "starlette", "click", "rich"})
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def needed(distribution: str = "penstock") -> list[str]:
    """The distributions that one needs without extras, at any depth, sorted; without those in `_LEFT_OUT`."""
    found: set[str] = set()
    waiting = [distribution]
    while waiting:
        for requirement in _requirements(waiting.pop()):
            if requirement not in found | _LEFT_OUT:
                found.add(requirement)
                waiting.append(requirement)
    return sorted(found)


def _requirements(distribution: str) -> Iterator[str]:
    try:
        required = metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:
        return
    for text in required:
        requirement, _, condition = text.partition(";")
        name = _NAME.match(requirement.strip())
        # Extras are installed on purpose; other conditions were decided when this was installed.
        if name is not None and "extra" not in condition and _installed(_normal(name[0])):
            yield _normal(name[0])


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def pack(target: Path, more: Sequence[Path] = ()) -> list[str]:
    """Writes an archive; one that is there is replaced when the new one is complete.

    Args:
        target: A file whose name ends with .tar.gz or .tgz.
        more: Files and folders of modules, for the archive's top.

    Raises:
        ConnectException: The name is another, or something cannot be read or written.
    """
    if not target.name.endswith((".tar.gz", ".tgz")):
        raise ConnectException(f"{target} is no name for an archive: Spark unpacks files that end with .tar.gz or .tgz")
    draft = target.with_name(f".{target.name}.draft")
    names = needed()
    try:
        with tarfile.open(draft, "w:gz", compresslevel=3) as archive:
            own = Path(penstock.__file__).parent
            archive.add(own, "penstock", filter=_without_caches)
            for name in names:
                for path, place in _files(name):
                    archive.add(path, place, recursive=False)
            for path in more:
                for one in sorted(path.iterdir()) if path.is_dir() else [path]:
                    archive.add(one, one.name, filter=_without_caches)
        draft.replace(target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ConnectException(f"The archive {target} cannot be made: {error}") from error
    return ["penstock", *names, *(path.name for path in more)]


def _files(name: str) -> Iterable[tuple[Path, str]]:
    for file in metadata.distribution(name).files or ():
        place = file.as_posix()
        path = Path(str(file.locate()))
        # Scripts lie outside of the packages.
        if not place.startswith("..") and "__pycache__" not in place and path.is_file():
            yield path, place


def _without_caches(found: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in found.name or found.name.endswith(".pyc") else found
