"""What is wrong with `spark.remote` is told before a connection is tried, without the parameters of the address."""

import socket

import pytest

from penstock.errors import SparkUnavailableException
from penstock.pipeline.spark.jvm import SessionRefusedException
from penstock.pipeline.spark.remote_session import RemoteSession


@pytest.mark.parametrize("url", ["local[2]", "https://host:15002", "sc://", "sc://host:port/;token=secret"])
def test_an_address_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(SessionRefusedException, match="looks like sc://host:15002") as caught:
        RemoteSession(url, {})

    assert "secret" not in str(caught.value)


def test_a_server_that_is_not_there_may_come_back(free_port: int) -> None:
    with pytest.raises(
        SparkUnavailableException, match=f"no Spark Connect server answers at 127.0.0.1:{free_port}"
    ) as it:
        RemoteSession(f"sc://127.0.0.1:{free_port}/;token=secret", {})

    assert not isinstance(it.value, SessionRefusedException)
    assert "secret" not in str(it.value)


def test_missing_packages_are_named_with_what_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "zstandard" else name)

    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(SessionRefusedException) as caught:
        RemoteSession(f"sc://127.0.0.1:{listener.getsockname()[1]}", {})

    assert "zstandard missing" in str(caught.value)
    assert "penstock[connect]" in str(caught.value)
