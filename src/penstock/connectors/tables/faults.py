"""Errors of the libraries of Delta and Iceberg, grouped by the remedy: waiting, or an action of the user.

Main function: ``fault_of``. Pure; any thread.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.errors import ConnectException, RetriableException

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
