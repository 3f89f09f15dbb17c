"""Directories that the connectors themselves read and write, with PyArrow: `place_of`, `reachable`.

Thread: any. Source: Penstock's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow import fs

from penstock.errors import ConfigException, RetriableException


def place_of(path: str, setting: str) -> tuple[Any, str]:
    """The file system of a path in Spark's notation, and the path in it.

    Args:
        path: A path, file:, s3a://, hdfs:// and so on.
        setting: Where it comes from, for errors.

    Raises:
        ConfigException: PyArrow does not support the file system.
    """
    uri = path
    for spark, arrow in (("s3a://", "s3://"), ("s3n://", "s3://")):
        uri = uri.replace(spark, arrow, 1) if uri.startswith(spark) else uri
    if uri.startswith("file:"):
        uri = "/" + uri.removeprefix("file:").lstrip("/")
    try:
        filesystem, root = fs.FileSystem.from_uri(uri)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise ConfigException(f"{setting}={path} is nothing that PyArrow can write to: {error}") from error
    return filesystem, root.rstrip("/")


@contextmanager
def reachable(path: str, done: str = "written") -> Iterator[None]:
    """Errors of a file system in the block are errors for users.

    Args:
        path: The path, for the message.
        done: What cannot be done: a participle.

    Raises:
        RetriableException: The file system has refused.
    """
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise RetriableException(f"{path} cannot be {done}: {error}") from error
