"""Objects of Amazon S3, and of stores that speak its protocol; needs boto3. Any thread.

PyArrow's own S3 file system is not used: it completes an upload whose writer has failed, and can neither list from a
key nor end uploads of other processes.

Source: the API reference of Amazon S3, and its page "Error responses".
"""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, Final, TypeVar
from urllib.parse import unquote_plus

import pyarrow as pa

from penstock.errors import ConnectException, RetriableException
from penstock.files.store import ChangedException, Found, GoneException, LoginException, Store, gone

log = logging.getLogger(__name__)
_T = TypeVar("_T")
#: Bytes that one request of a reader fetches at least.
_RANGE_BYTES = 8 << 20
#: The time that a connection may take, in seconds.
_CONNECT_S = 5.0
#: The key for the start time of a request in its context.
_BEGAN = "penstock.began"


@dataclass(frozen=True, slots=True)
class S3Options:
    """A bucket, and the options of its client.

    Attributes:
        bucket: Its name.
        prefix: The prefix of all keys, without a slash at its end.
        region: None: from the default chain.
        endpoint: The address of a store other than Amazon's.
        path_style: True: the bucket is in the path, not in the host name.
        key_id: None: the default chain finds credentials.
        secret: The secret of the key.
        token: The token of a session.
        ca: A file with the authorities to trust; None: those of the system.
        part_size: The bytes of a part of an upload.
        encryption: ``AES256``, ``aws:kms`` or nothing.
        kms_key: The key for ``aws:kms``.
        acl: A canned ACL, or nothing.
        retries: How often the client itself retries.
        proxy: The address of a proxy, or nothing.
        timeout_s: The time that the store may take to answer, in seconds.

    Source: the API reference of Amazon S3.
    """

    bucket: str
    prefix: str = ""
    region: str | None = None
    endpoint: str | None = None
    path_style: bool = True
    key_id: str | None = None
    secret: str | None = None
    token: str | None = None
    ca: str | None = None
    part_size: int = 25 << 20
    encryption: str = ""
    kms_key: str = ""
    acl: str = ""
    retries: int = 3
    proxy: str = ""
    timeout_s: float = 20.0


class S3Store(Store):
    """A bucket, or the objects below a prefix.

    Args:
        renew: Returns new options when the store rejects the credentials, because a secret may have changed.
    """

    def __init__(self, options: S3Options, renew: Callable[[], S3Options] | None = None) -> None:
        self._options = options
        self._renew = renew
        self._client = _client(options)

    def put(self, key: str, data: BinaryIO, size: int) -> None:
        """See ``Store``: one request, or a multipart upload for a file that is larger than a part."""
        begin = data.tell()

        def write(client: Any) -> None:
            data.seek(begin)
            if size <= self._options.part_size:
                client.put_object(**self._named(key), Body=data.read(), **self._extra())
            else:
                self._multipart(client, key, data)

        self._run("PutObject", key, write)

    def create_if_absent(self, key: str, data: bytes) -> bool:
        def create(client: Any) -> bool:
            from botocore.exceptions import ClientError

            try:
                client.put_object(**self._named(key), Body=data, IfNoneMatch="*", **self._extra())
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] == 412:
                    return False
                raise
            return True

        return self._run("PutObject", key, create)

    def list_from(self, directory: str, start: str) -> Iterator[str]:
        """See ``Store``: pages of 1,000 names."""
        prefix = self._path(directory) + "/"
        after = ""
        while True:
            names, after = self._run("ListBucket", directory, partial(self._page, prefix, start, after))
            yield from names
            if not after:
                return

    def delete(self, key: str) -> None:
        self._run("DeleteObject", key, lambda client: client.delete_object(**self._named(key)))

    def end_unfinished(self, directory: str, starts: tuple[str, ...]) -> int:
        """See ``Store``: multipart uploads, which cost money until they are ended."""

        def end(client: Any) -> int:
            count = 0
            pages = client.get_paginator("list_multipart_uploads")
            for page in pages.paginate(Bucket=self._options.bucket, Prefix=self._path(directory) + "/"):
                for upload in page.get("Uploads", ()):
                    if upload["Key"].rsplit("/", 1)[-1].startswith(starts):
                        client.abort_multipart_upload(
                            Bucket=self._options.bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                        )
                        count += 1
            return count

        return self._run("ListBucketMultipartUploads", directory, end)

    def walk(self, skip: Callable[[str], bool], below: str = "") -> Iterator[Found]:
        """See ``Store``: pages of 1,000 keys, in the order of their bytes."""
        prefix = f"{self._options.prefix}/" if self._options.prefix else ""
        asked = prefix + (below and f"{below}/")
        after = ""
        while True:
            page = self._run("ListBucket", below, partial(self._keys, asked, after))
            for one in page.get("Contents", ()):
                key = one["Key"].removeprefix(prefix)
                parents = key.split("/")[:-1]
                if key.endswith("/") or any(skip("/".join(parents[:end])) for end in range(1, len(parents) + 1)):
                    continue
                yield _found(key, one["Size"], one)
            after = page.get("NextContinuationToken", "")
            if not after:
                return

    def look_at(self, key: str) -> Found:
        return self._run("GetObject", key, lambda client: self._head(client, key))

    def open(self, found: Found) -> Any:
        """See ``Store``: ranges of bytes of this version of the object."""

        def fetch(start: int, end: int) -> bytes:
            return self._run("GetObject", found.key, lambda client: self._part(client, found, start, end))

        return pa.PythonFile(io.BufferedReader(_Ranges(fetch, found.size), _RANGE_BYTES), mode="r")

    def move(self, key: str, target: str) -> None:
        """See ``Store``: a copy by the store, then the other one is deleted. One of more than 5 GiB goes in parts."""

        def copy(client: Any) -> None:
            client.copy(
                {"Bucket": self._options.bucket, "Key": self._path(key)},
                self._options.bucket,
                self._path(target),
                ExtraArgs=self._extra(),
            )

        try:
            self._run("GetObject", key, copy)
        except GoneException:
            return
        self.delete(key)

    def check(self) -> None:
        prefix = f"{self._options.prefix}/" if self._options.prefix else ""
        self._run(
            "ListBucket",
            "",
            lambda client: client.list_objects_v2(Bucket=self._options.bucket, MaxKeys=1, Prefix=prefix),
        )

    def close(self) -> None:
        self._client.close()

    def _head(self, client: Any, key: str) -> Found:
        from botocore.exceptions import ClientError

        try:
            answer = client.head_object(**self._named(key))
            return _found(key, answer["ContentLength"], answer)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] not in (400, 403):
                raise
        # Such an answer has no body that says why: credentials that have run out, or no right.
        answer = client.get_object(**self._named(key))
        answer["Body"].close()
        return _found(key, answer["ContentLength"], answer)

    def _part(self, client: Any, found: Found, start: int, end: int) -> bytes:
        # Some stores list no ETag, and some leave the condition out.
        condition = {"IfMatch": found.version} if found.version else {}
        answer = client.get_object(**self._named(found.key), Range=f"bytes={start}-{end - 1}", **condition)
        size = str(answer.get("ContentRange", "")).rpartition("/")[2]
        if found.version:
            is_same = answer.get("ETag", found.version) == found.version
        else:
            # A header has no parts of seconds.
            is_same = int(answer["LastModified"].timestamp()) == found.time_ns // 1_000_000_000
        if not is_same or (size.isdigit() and int(size) != found.size):
            answer["Body"].close()
            raise ChangedException(f"{self._label(found.key)} was changed while it was read")
        data = bytes(answer["Body"].read())
        if len(data) != end - start:
            # An answer without the header that tells its length ends with its connection.
            raise RetriableException(f"{self._label(found.key)} was not sent as a whole")
        return data

    def _keys(self, prefix: str, after: str, client: Any) -> Any:
        more = {"ContinuationToken": after} if after else {}
        return self._listed(client, Prefix=prefix, **more)

    def _page(self, prefix: str, start: str, after: str, client: Any) -> tuple[tuple[str, ...], str]:
        more = {"ContinuationToken": after} if after else {"StartAfter": _before(prefix + start)}
        page = self._listed(client, Prefix=prefix, Delimiter="/", **more)
        names = (one["Key"].removeprefix(prefix) for one in page.get("Contents", ()))
        return tuple(name for name in names if name >= start), page.get("NextContinuationToken", "")

    def _listed(self, client: Any, **asked: Any) -> Any:
        """A page of a listing, with unencoded names: some stores wrongly claim that names are encoded.

        Only names that XML cannot express are requested in URL encoding: the plain response for them is invalid XML, or
        an error of the store.
        """
        from botocore.exceptions import ClientError
        from botocore.parsers import ResponseParserError

        try:
            return _whole(client.list_objects_v2(Bucket=self._options.bucket, **asked))
        except (ResponseParserError, ClientError) as error:
            answer = getattr(error, "response", None)
            if answer is not None and answer["ResponseMetadata"]["HTTPStatusCode"] != 500:
                raise
        page = _whole(client.list_objects_v2(Bucket=self._options.bucket, EncodingType="url", **asked))
        for one in page.get("Contents", ()):
            one["Key"] = unquote_plus(one["Key"])
        return page

    def _multipart(self, client: Any, key: str, data: BinaryIO) -> None:
        upload = client.create_multipart_upload(**self._named(key), **self._extra())["UploadId"]
        try:
            parts: list[dict[str, Any]] = []
            while part := data.read(self._options.part_size):
                number = len(parts) + 1
                answer = client.upload_part(**self._named(key), UploadId=upload, PartNumber=number, Body=part)
                parts.append({"PartNumber": number, "ETag": answer["ETag"]})
            client.complete_multipart_upload(**self._named(key), UploadId=upload, MultipartUpload={"Parts": parts})
        except BaseException:
            try:
                client.abort_multipart_upload(**self._named(key), UploadId=upload)
            except Exception as error:
                log.warning("The upload of %s could not be ended: %s", self._label(key), error)
            raise

    def _run(self, what: str, key: str, call: Callable[[Any], _T]) -> _T:
        """Makes a call; again with newer credentials, if there are some."""
        client = self._client
        try:
            return _translated(what, self._label(key), call, client)
        except LoginException:
            options = self._options if self._renew is None else self._renew()
            if client is self._client:
                if options == self._options:
                    raise
                self._options, self._client = options, _client(options)
        return _translated(what, self._label(key), call, self._client)

    def _named(self, key: str) -> dict[str, str]:
        return {"Bucket": self._options.bucket, "Key": self._path(key)}

    def _path(self, key: str) -> str:
        return f"{self._options.prefix}/{key}".strip("/")

    def _label(self, key: str) -> str:
        at = f" at {self._options.endpoint}" if self._options.endpoint else ""
        return f"s3://{self._options.bucket}/{self._path(key)}".rstrip("/") + at

    def _extra(self) -> dict[str, str]:
        options = self._options
        found = {"ServerSideEncryption": options.encryption, "SSEKMSKeyId": options.kms_key, "ACL": options.acl}
        return {name: value for name, value in found.items() if value}


_BUSY: Final = {"SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling",
                "ThrottlingException",
                "RequestLimitExceeded", "ConditionalRequestConflict",
                "OperationAborted", "NoSuchUpload", "BandwidthLimitExceeded"}  # fmt: skip
_LOGIN: Final = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "ExpiredTokenException",
                 "TokenRefreshRequired", "RequestExpired",
                 "InvalidClientTokenId", "AuthFailure", "NotSignedUp"}  # fmt: skip
_RIGHTS: Final = (
    "a sink needs s3:PutObject, s3:DeleteObject, s3:ListBucket and s3:AbortMultipartUpload, a source s3:ListBucket and "
    "s3:GetObject, and s3:PutObject and s3:DeleteObject to move files"
)


def of_s3(error: Exception, where: str, what: str) -> ConnectException:
    """The error of boto3.

    Args:
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
        return gone(where)
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


class _Ranges(io.RawIOBase):
    """A file whose bytes are fetched in ranges."""

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        self._fetch, self._size, self._at = fetch, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._size, self._at + len(buffer))
        if end <= self._at:
            return 0
        data = self._fetch(self._at, end)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _whole(page: Any) -> Any:
    """The page of a listing. One whose connection was cut in front of its body is not one without names."""
    page["IsTruncated"]
    return page


def _found(key: str, size: int, answer: Any) -> Found:
    return Found(key, size, int(answer["LastModified"].timestamp() * 1e9), answer.get("ETag", ""))


def _before(key: str) -> str:
    """A key right before another, because a listing begins after the given key."""
    return key[:-1] + chr(max(0, ord(key[-1]) - 1)) if key else ""


def _translated(what: str, where: str, call: Callable[[Any], _T], client: Any) -> _T:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return call(client)
    except (ClientError, BotoCoreError) as error:
        raise of_s3(error, where, what) from error
    except (KeyError, ValueError) as error:
        # The connection was cut in the middle of the answer's headers: one is missing, or has half of its value.
        raise RetriableException(f"{where} answers {what} in part for now: {error!r}") from error


def _begin(params: dict[str, Any], **_: Any) -> None:
    params["context"][_BEGAN] = time.monotonic()


def _end_late(
    limit_s: float, request_dict: dict[str, Any], response: Any, caught_exception: Exception | None, **_: Any
) -> None:
    """Ends a call of boto3 that has had its time: another attempt by itself could take as long again."""
    from botocore.exceptions import ReadTimeoutError

    if time.monotonic() - request_dict["context"].get(_BEGAN, 0.0) < limit_s:
        return
    if caught_exception is not None:
        raise caught_exception
    if response is not None and response[0].status_code >= 500:
        raise ReadTimeoutError(endpoint_url=request_dict["url"], error=f"status {response[0].status_code}")


def _client(options: S3Options) -> Any:
    import boto3
    from botocore.config import Config
    from botocore.handlers import add_expect_header, set_list_objects_encoding_type_url

    config = Config(
        connect_timeout=min(_CONNECT_S, options.timeout_s),
        read_timeout=options.timeout_s,
        retries={"mode": "standard", "total_max_attempts": options.retries + 1},
        s3={"addressing_style": "path" if options.path_style else "virtual"},
        # Stores other than Amazon's do not support the checksums that newer clients send after a body.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        proxies={"http": options.proxy, "https": options.proxy} if options.proxy else None,
        max_pool_connections=16,
    )
    session = boto3.session.Session(
        aws_access_key_id=options.key_id,
        aws_secret_access_key=options.secret,
        aws_session_token=options.token,
        region_name=options.region,
    )
    client = session.client(
        "s3",
        endpoint_url=options.endpoint or None,
        region_name=options.region or session.region_name or "us-east-1",
        verify=options.ca or None,
        config=config,
    )
    # With `Expect: 100-continue` botocore reads for ever where the connection is cut in the answer to that.
    client.meta.events.unregister("before-call.s3", add_expect_header)
    client.meta.events.register("before-call.s3", _begin)
    client.meta.events.register_first("needs-retry.s3", partial(_end_late, options.timeout_s))
    # Names come as they are: see `_listed`.
    client.meta.events.unregister("before-parameter-build.s3.ListObjectsV2", set_list_objects_encoding_type_url)
    return client
