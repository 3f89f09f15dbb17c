"""Tables of a lakehouse, in any format, for the sink, and the errors of the libraries of formats.

Main types: `Lake`, which opens and creates tables; `LakeTable`, one of them; `Moves`, the offsets of a commit;
`Writer`, the connector. ``fault_of`` groups errors by the remedy: waiting, or an action of the user.

Thread: the task's.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.api import TopicPartition
from penstock.errors import ConnectException, RetriableException

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    from penstock.connectors.tables.types import Kinds

#: Words of temporary errors of object stores, catalogs and file systems.
_PASSING: Final = re.compile(
    r"\b(50[0234]|429)\b|slow ?down|service ?unavailable|timed? ?out|connection (refused|reset|closed|error|aborted)|"
    r"error sending request|could not connect|temporar|no space left|too many requests|database is locked|"
    r"broken pipe|network|server is unavailable|couldn't connect|curl code: (7|28|52|56)|unable to open database|"
    r"\bHTTP error\b|error (decoding|reading) (a|response) body|end of file before message|incomplete message|"
    r"no ?such ?upload|curlcode: (7|18|28|52|55|56)|unexpected eof|remote end closed|max retries exceeded|"
    r"internal ?error|try again|client error \(connect\)|already exists",
    re.IGNORECASE,
)
#: Terminal colours, and arrows to causes, in texts of deltalake.
_COLOUR: Final = re.compile("\x1b\\[[0-9;]*m|\u21b3")
#: Numbers that are no status: times and ports, "in 401.9ms", "127.0.0.1:50312".
_NO_STATUS: Final = re.compile(r"\d+\.\d+\S*|:\d+|\d+(?:ns|us|\u00b5s|ms|s)\b")
#: Some stores refuse a second request to complete an upload, whose first answer was lost, as one without rights; a real
#: lack of rights shows with the parts before it.
_AGAIN: Final = re.compile(r"access denied during completemultipartupload", re.IGNORECASE)
_RULES: Final = (
    (r"no ?such ?bucket|bucket does not exist", "create the bucket, or correct url"),
    (
        r"invalid ?access ?key|signature ?does ?not ?match|expired ?token|no credentials|unauthorized|\b401\b|"
        r"unable to (load|locate) credentials|credential",
        "correct the credentials (aws.access.key.id and aws.secret.access.key, iceberg.catalog.credential or token, or "
        "what the default chain finds)",
    ),
    (
        r"access ?denied.*no response body",
        "correct the credentials (aws.access.key.id and aws.secret.access.key), if they have run out, or grant the "
        "right to read and write there",
    ),
    (r"access ?denied|forbidden|\b403\b|permission denied|read-only", "grant the right to read and write there"),
    (r"constraint|invariant", "the table has a rule that a record breaks: alter the rule, or filter such records"),
    (r"no such file|not a directory|does not exist|no such table", "check url, and that the table is still there"),
)


def fault_of(error: BaseException, where: str, what: str) -> ConnectException:
    """Converts an error of a library to one for people.

    Args:
        error: The error.
        where: The table or lake.
        what: The operation: ``write to``, ``read`` and so on.

    >>> type(fault_of(OSError("503 Slow Down"), "the table t", "write to")).__name__
    'RetriableException'
    >>> str(fault_of(OSError("AccessDenied"), "the table t", "write to"))[:76]
    'Cannot write to the table t: AccessDenied. What to do: grant the right to re'
    """
    if isinstance(error, ConnectException):
        return error
    text = " ".join(_COLOUR.sub("", str(error)).split()) or type(error).__name__
    said = f"Cannot {what} {where}: {text[:800]}"
    # PyArrow writes NO_SUCH_BUCKET.
    text = _NO_STATUS.sub(" ", text).replace("_", " ")
    if _AGAIN.search(text):
        return RetriableException(f"{said}. It is tried again; if that does not help, grant the right to write there")
    for pattern, advice in _RULES[:4]:
        if re.search(pattern, text, re.IGNORECASE):
            return ConnectException(f"{said}. What to do: {advice}; then restart the task")
    if _PASSING.search(text) or type(error).__name__ in ("ServiceUnavailableError", "ServerError", "ConnectionError"):
        return RetriableException(f"{said}. It is tried again")
    for pattern, advice in _RULES[4:]:
        if re.search(pattern, text, re.IGNORECASE):
            return ConnectException(f"{said}. What to do: {advice}; then restart the task")
    return ConnectException(said)


#: For each partition its position in the table before the commit (None for none), and after it.
Moves: TypeAlias = "Mapping[TopicPartition, tuple[int | None, int]]"

#: Data files of a table that may not be in a version yet; values of JSON.
Files: TypeAlias = "Mapping[str, Any]"

#: The column of ``LakeTable.change`` that is true in rows to delete.
GONE = "__penstock_gone"


class OutrunException(ConnectException):
    """Another task has written records of these partitions: positions in the table differ from this task's.

    Args:
        places: The partitions.
        text: The message.
    """

    def __init__(self, places: Sequence[TopicPartition], text: str) -> None:
        super().__init__(text)
        self.places = tuple(places)


class CommitConflictException(RetriableException):
    """Another writer was faster; the commit has to be repeated on the newest version of the table."""


def second_writer(table: str, connector: str, other: str | None, topic: str) -> ConnectException:
    """The error of a connector whose records another one has written into the table.

    Args:
        table: The table.
        connector: The connector.
        other: The other one; None if its name is unknown.
        topic: The topic of the records.
    """
    by, who = (f"the connector {other}", other) if other else ("another connector", "that connector")
    return ConnectException(
        f"The table {table} has the records of the topic {topic} from {by}, and {connector} would double them. Give "
        f"one of the two another table, or leave the topic out of one. If {who} is gone or was renamed, set "
        f"renamed.from={other or 'NAME'}, and {connector} continues after its offsets. If both write different "
        "records of the topic, by filters, set shared.tables=true"
    )


def second_cluster(table: str, writer: Writer, other: str | None, topic: str) -> ConnectException:
    """The error of a connector whose name has offsets of another Kafka cluster in the table.

    Args:
        table: The table.
        writer: The connector.
        other: The id of the other cluster; None if it is unknown.
        topic: The topic of the records.
    """
    return ConnectException(
        f"The table {table} has the offsets of the topic {topic} from a connector {writer.connector} of the Kafka "
        f"cluster {other or 'that is another one'}, and this one is of {writer.cluster}: connectors of one name take "
        "each other's offsets in a table for their own. Give one of them another name. If the topics were moved to "
        f"this cluster with their offsets, set renamed.from={writer.connector}, and it continues after them"
    )


@dataclass(frozen=True, slots=True)
class Writer:
    """The connector that writes the tables.

    Attributes:
        connector: Its name, by which commits have its offsets.
        renamed_from: Its former name; empty for none; its own name to continue after offsets of another Kafka cluster.
        is_shared: True if other connectors may write the same topics into the tables.
        cluster: The id of its Kafka cluster; None: connectors of this name are one in all clusters.
    """

    connector: str
    renamed_from: str = ""
    is_shared: bool = False
    cluster: str | None = None

    def is_foreign(self, cluster: object, own: object) -> bool:
        """True if offsets of this name are those of another cluster, which it does not continue."""
        return self.cluster is not None and cluster not in (None, own) and self.renamed_from != self.connector


class LakeTable(ABC):
    """A table, and the offsets of a connector in its commits.

    Attributes:
        name: As in the settings.
    """

    name: str

    @property
    @abstractmethod
    def columns(self) -> pa.Schema:
        """The columns, with the types of the format."""

    @abstractmethod
    def positions(self) -> Mapping[TopicPartition, int]:
        """The offsets after the last records in the table, as of the last ``refresh``."""

    @abstractmethod
    def refresh(self) -> None:
        """Reads the newest version.

        Raises:
            RetriableException: The table cannot be reached.
            ConnectException: It no longer exists, or another table has its name.
        """

    @abstractmethod
    def evolve(self, columns: pa.Schema) -> None:
        """Adds columns, widens them, and makes them optional.

        Raises:
            CommitConflictException: Another writer was faster.
            ConnectException: The table refuses.
        """

    @property
    def partition_columns(self) -> Sequence[str]:
        """The columns whose values are in the paths of files, where a library names directories by them."""
        return ()

    @abstractmethod
    def check_writer(self, places: Iterable[TopicPartition]) -> None:
        """Refuses a table in which another connector has written these partitions; each commit checks that, too.

        Raises:
            RetriableException: The table cannot be reached.
            ConnectException: Another connector writes them, or has written them.
        """

    @abstractmethod
    def append(self, rows: Iterable[pa.Table], moves: Moves) -> None:
        """Adds rows, and moves offsets, in one commit.

        Args:
            rows: Tables with the columns of the table, in order. Read once.
            moves: The offsets.

        Raises:
            OutrunException: Offsets differ from this task's; nothing was written.
            CommitConflictException: Another writer was faster; nothing was written.
            RetriableException: The table cannot be reached; the next ``landed`` shows if the commit succeeded.
            ConnectException: The table refuses.
        """

    @abstractmethod
    def write(self, rows: Iterable[pa.Table]) -> Files:
        """Writes data files that readers do not see before ``add``.

        Args:
            rows: As for ``append``.

        Raises:
            RetriableException: The table cannot be reached.
            ConnectException: The table refuses.
        """

    @abstractmethod
    def fits(self, files: Files) -> bool:
        """True if written files can be added to the current table, and still exist.

        Raises:
            ConnectException: As for ``write``.
        """

    @abstractmethod
    def add(self, files: Sequence[Files], moves: Moves) -> None:
        """Adds the rows of files from ``write``, of any process, and moves offsets, in one commit.

        Raises:
            ConnectException: As for ``append``; files stay in any case.
        """

    @abstractmethod
    def beside(self) -> tuple[FileSystem, str]:
        """A file system, and the directory of the table in it; names there that begin with ``_`` are not data files.

        Raises:
            ConnectException: As for ``write``.
        """

    @abstractmethod
    def change(self, rows: pa.Table, keys: Sequence[str], moves: Moves) -> None:
        """Replaces, adds and deletes rows by key, and moves offsets, in one commit.

        Args:
            rows: The columns of the table, and ``GONE``: one row for each key.
            keys: The columns of the key.
            moves: The offsets.

        Raises:
            ConnectException: As for ``append``.
        """

    @abstractmethod
    def move(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Sets positions, in a commit without rows; None: nothing counts as written.

        Raises:
            ConnectException: As for ``append``.
        """

    @abstractmethod
    def compact(self) -> int:
        """Joins files that are smaller than the target size; rows and offsets do not change.

        Returns:
            The number of replaced files.

        Raises:
            CommitConflictException: Another writer was faster; nothing was changed.
            ConnectException: The table cannot be reached, or refuses.
        """

    @abstractmethod
    def expire(self, older_than_ms: int) -> int:
        """Removes old versions.

        Args:
            older_than_ms: The minimum age of removed versions; the newest one always stays.

        Returns:
            The number of removed files or snapshots; Delta also counts earlier ones.

        Raises:
            ConnectException: As for ``compact``.
        """

    def landed(self, moves: Moves) -> bool:
        """True if a commit whose outcome is unknown is in the table.

        Raises:
            OutrunException: The offsets are neither those before nor those after the commit.
        """
        there = self.positions()
        if moves and all(there.get(place) == after for place, (_, after) in moves.items()):
            return True
        outrun = [place for place, (before, _) in moves.items() if there.get(place) != before]
        if outrun:
            place = outrun[0]
            raise OutrunException(
                outrun,
                f"The table {self.name} has the records of topic {place.topic}, partition {place.partition}, up to the "
                f"offset {there.get(place)}, and this task left it at {moves[place][0]}: another task has written them",
            )
        return False


class Lake(ABC):
    """The place of tables: a directory, a bucket, or a catalog.

    Attributes:
        kinds: The types of its tables.
    """

    kinds: Kinds

    @abstractmethod
    def check(self) -> None:
        """Checks that tables can be created and read there.

        Raises:
            RetriableException: It is unreachable.
            ConnectException: It does not exist, or refuses.
        """

    @abstractmethod
    def table(self, name: str, branch: str = "") -> LakeTable | None:
        """The table of a name; None if there is none.

        Raises:
            RetriableException: It cannot be reached.
            ConnectException: It cannot be read.
        """

    @abstractmethod
    def create(
        self, name: str, columns: pa.Schema, partition_by: Sequence[str], keys: Sequence[str], branch: str = ""
    ) -> LakeTable:
        """Creates a table, or opens one that another task has created meanwhile.

        Raises:
            RetriableException: The lake is unreachable.
            ConnectException: It refuses.
        """

    @abstractmethod
    def names(self) -> Sequence[str]:
        """The names of all tables.

        Raises:
            ConnectException: They cannot be listed.
        """

    def close(self) -> None:
        """Closes connections."""
