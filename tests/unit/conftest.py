"""What unit tests of several directories share, and its end."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import pytest


@pytest.fixture(scope="session", autouse=True)
def shared_server_ends() -> Iterator[None]:
    """Stops the REST server of the tests, if one of them has started it."""
    yield
    if (client := sys.modules.get("tests.unit.rest.api_client")) is not None:
        client.SHARED.stop()


@pytest.fixture(scope="session", autouse=True)
def the_machine_is_read_once() -> Iterator[None]:
    """Which authorities clients of HTTP trust, and which distributions declare plugins, is read once for all tests.

    Each client and each set of plugins would read it anew, which takes longer than most tests of it.
    """
    import httpx
    from httpx._transports import default as transport

    from penstock.plugins import registry

    make_context, find = httpx.create_ssl_context, registry.find_entry_points

    @functools.cache
    def trusting(*environment: str | None) -> Any:
        return make_context()

    def create_ssl_context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> Any:
        if verify is not True or cert is not None or not trust_env:
            return make_context(verify=verify, cert=cert, trust_env=trust_env)
        return trusting(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))

    @functools.cache
    def installed(*path: str) -> Any:
        return find()

    def find_entry_points(paths: Sequence[str] | None = None) -> Any:
        return list(installed(*sys.path)) if paths is None else find(paths)

    with (
        mock.patch.object(transport, "create_ssl_context", create_ssl_context),
        mock.patch.object(registry, "find_entry_points", find_entry_points),
    ):
        yield


@pytest.fixture(scope="session", autouse=True)
def aws_is_read_once() -> Iterator[None]:
    """Each client of S3 would read the descriptions of what AWS has anew, which takes as long as most tests of it."""
    if "boto3" not in sys.modules:
        yield
        return
    import botocore.regions
    import botocore.session

    make, made = botocore.regions.EndpointProvider, dict[int, tuple[Any, Any]]()

    def provider(ruleset_data: Any, **more: Any) -> Any:
        # The loader gives the same object each time.
        known = made.setdefault(id(ruleset_data), (ruleset_data, None))
        if known[1] is None:
            known = made[id(ruleset_data)] = (ruleset_data, make(ruleset_data=ruleset_data, **more))
        return known[1]

    loader = functools.cache(botocore.session.create_loader)
    with (
        mock.patch.object(botocore.session, "create_loader", loader),
        mock.patch.object(botocore.regions, "EndpointProvider", provider),
    ):
        yield
