"""Classifies errors of stores: temporary, or to be fixed by an operator. Main functions: ``of_system``, ``of_s3``.
Pure.

Source: the documentation of Amazon S3, "Error responses".
"""

from __future__ import annotations

import errno
from typing import Any, Final

from penstock.errors import ConnectException, RetriableException

_PASSING: Final = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EIO,
    errno.EAGAIN,
    errno.ETIMEDOUT,
    errno.ECONNREFUSED,
    errno.ESTALE,
}
_FOREVER: Final = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.EISDIR,
}
_BUSY: Final = {"SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling",
                "ThrottlingException",
                "RequestLimitExceeded", "ConditionalRequestConflict",
                "OperationAborted", "NoSuchUpload", "BandwidthLimitExceeded"}  # fmt: skip
_LOGIN: Final = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "ExpiredTokenException",
                 "TokenRefreshRequired", "RequestExpired",
                 "InvalidClientTokenId", "AuthFailure", "NotSignedUp"}  # fmt: skip


#: The right that an operation on files needs.
_NEEDED: Final = {"read": "read", "list": "read"}
_RIGHTS: Final = (
    "a sink needs s3:PutObject, s3:DeleteObject, s3:ListBucket and s3:AbortMultipartUpload, a source s3:ListBucket and "
    "s3:GetObject, and s3:PutObject and s3:DeleteObject to move files"
)


class LoginException(ConnectException):
    """A store does not accept the credentials."""


class GoneException(ConnectException):
    """A file that was there is not there any more."""


class ChangedException(ConnectException):
    """A file is another one than when it was opened."""


def of_system(error: OSError, where: str, what: str) -> ConnectException:
    """The error of a file system.

    Args:
        error: The error.
        where: The file or directory, for people.
        what: The failed operation: ``write``, ``list`` and so on.
    """
    text = " ".join(str(error.strerror or error).split())
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RetriableException(f"Cannot {what} {where}: {text}. It is tried again: make room")
    if what == "read" and (error.errno == errno.ENOENT or isinstance(error, FileNotFoundError)):
        return GoneException(f"{where} is gone: it was moved or deleted before it was read to its end")
    if error.errno in _FOREVER or (error.errno is None and isinstance(error, (PermissionError, FileNotFoundError))):
        return ConnectException(
            f"Cannot {what} {where}: {text}. Check the path, and that the worker's user may "
            f"{_NEEDED.get(what, 'write')} there; then restart the task"
        )
    return RetriableException(f"Cannot {what} {where}: {text}")


def of_s3(error: Exception, where: str, what: str) -> ConnectException:
    """The error of boto3.

    Args:
        error: The error.
        where: The object or bucket, for people.
        what: The failed S3 operation, by the name of its permission: ``PutObject``.
    """
    text = " ".join(str(error).split())
    answer: Any = getattr(error, "response", None)
    if not isinstance(answer, dict):
        return _of_client(error, text, where, what)
    code = str(answer.get("Error", {}).get("Code", ""))
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    said = f"{code or status} {answer.get('Error', {}).get('Message', '')}".strip()
    if code == "NoSuchBucket" or (status == 404 and what == "ListBucket"):
        return ConnectException(
            f"There is no bucket for {where} ({said}): create it, or correct url or s3.bucket.name; then "
            "restart the task"
        )
    if what == "GetObject" and (code in ("NoSuchKey", "404") or status == 404):
        return GoneException(f"{where} is gone: it was moved or deleted before it was read to its end")
    if what == "GetObject" and status in (412, 416):
        return ChangedException(f"{where} was changed while it was read ({said})")
    if code == "RequestTimeTooSkewed":
        return ConnectException(
            f"{where} does not accept requests by the clock of this machine ({said}): set the clock; then restart the "
            "task"
        )
    if code == "KeyTooLongError":
        return ConnectException(
            f"The key of {where} is too long ({said}): set a shorter url, topics.dir or path.format, or fewer fields "
            "in partition.field.name; then restart the task"
        )
    if code in _LOGIN:
        return LoginException(
            f"{where} does not accept the credentials ({said}): correct aws.access.key.id and aws.secret.access.key, "
            "or what the default chain finds (environment, profile, role); then restart the task"
        )
    if code == "NotImplemented" or status == 501:
        return ConnectException(f"{where} has no {what} ({said}): it is not all that S3 is")
    if code in _BUSY or status >= 500 or status == 429:
        return RetriableException(f"{where} does not answer {what} for now ({said})")
    if status in (301, 307, 400) and code in (
        "PermanentRedirect",
        "AuthorizationHeaderMalformed",
        "IllegalLocationConstraintException",
    ):
        return ConnectException(f"{where} is in another region ({said}): correct s3.region")
    if code == "AccessDenied" or status == 403:
        return ConnectException(
            f"The credentials have no right to {what} at {where} ({said}): grant s3:{what}; {_RIGHTS}"
        )
    return ConnectException(f"{where} refuses {what} ({said})")


def _of_client(error: Exception, text: str, where: str, what: str) -> ConnectException:
    name = type(error).__name__
    if name in ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound"):
        return LoginException(
            f"There are no credentials for {where} ({text}): set aws.access.key.id and aws.secret.access.key, or what "
            "the default chain looks for (environment, profile, role)"
        )
    if name == "SSLError":
        return ConnectException(
            f"The certificate of {where} is not trusted ({text}): set s3.ca.location to a file with its authority"
        )
    if name in ("ParamValidationError", "InvalidEndpoint", "UnknownEndpointError", "NoRegionError") or isinstance(
        error, ValueError
    ):
        return ConnectException(f"{where} cannot be asked for {what}: {text}")
    return RetriableException(f"{where} cannot be reached for {what}: {text}")
