"""What unit tests of several directories share, and its end."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from unittest import mock

import pytest


@pytest.fixture(scope="session", autouse=True)
def shared_server_ends() -> Iterator[None]:
    """Stops the REST server of the tests, if one of them has started it."""
    yield
    if (client := sys.modules.get("tests.unit.rest.api_client")) is not None:
        client.SHARED.stop()


@pytest.fixture(scope="session")
def aws_is_read_once() -> Iterator[None]:
    """Each client of S3 would read the descriptions of what AWS has anew, which takes as long as most tests of it."""
    import botocore.session

    once = functools.cache(botocore.session.create_loader)
    with mock.patch.object(botocore.session, "create_loader", once):
        yield
