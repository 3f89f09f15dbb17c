"""Errors of the libraries of Delta and Iceberg: what passes is tried again, and what does not says what to do."""

from __future__ import annotations

import pytest

from penstock.connectors.tables.lake import fault_of
from penstock.errors import ConnectException, RetriableException


@pytest.mark.parametrize(
    ("text", "kind", "advice"),
    [
        (
            "Kernel error -> Generic S3 error Error getting list response body HTTP error request or response body "
            "error error reading a body from connection end of file before message length reached",
            RetriableException,
            "tried again",
        ),
        ("Generic S3 error: HTTP error: error decoding response body", RetriableException, "tried again"),
        ("AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 18, partial", RetriableException, "again"),
        ("AWS Error NO_SUCH_UPLOAD during CompleteMultipartUpload operation", RetriableException, "again"),
        ("AWS Error ACCESS_DENIED during CompleteMultipartUpload operation: ", RetriableException, "grant the right"),
        ("AWS Error ACCESS_DENIED during CreateMultipartUpload operation: ", ConnectException, "grant the right"),
        ("AWS Error UNKNOWN (HTTP status 400): ExpiredToken", ConnectException, "correct the credentials"),
        (
            "AWS Error ACCESS_DENIED during HeadObject operation: No response body.",
            ConnectException,
            "have run out, or grant",
        ),
        ("AWS Error NO_SUCH_BUCKET during PutObject", ConnectException, "create the bucket"),
        ("AWS Error SLOW_DOWN during PutObject", RetriableException, "again"),
        (
            "Error performing GET http://127.0.0.1:403/b in 401.900937ms - operation timed out",
            RetriableException,
            "again",
        ),
        ("error after 401ms: Connection refused (127.0.0.1:401)", RetriableException, "again"),
        (
            "HTTP status client error (401 Unauthorized) for url (http://127.0.0.1:8181/v1)",
            ConnectException,
            "credentials",
        ),
        ("HTTP status server error (503 Service Unavailable) in 403.5ms", RetriableException, "again"),
        ("NoSuchBucket: the bucket does not exist", ConnectException, "create the bucket"),
    ],
)
def test_errors_are_sorted_by_what_helps(text: str, kind: type[Exception], advice: str) -> None:
    found = fault_of(OSError(text), "the table t", "write to")
    assert type(found) is kind
    assert advice in str(found)
