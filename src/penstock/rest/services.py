"""What the route modules share: the herder, the plugins, and awaiting a request with its time limit.

Main type: ``Services``. Used on the REST thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import Request

from penstock.herder import Herder
from penstock.model.payloads import PluginInfo

T = TypeVar("T")

REQUEST_TIMEOUT_S = 90.0


@dataclass(frozen=True)
class Services:
    """What routes work with.

    Attributes:
        herder: Serves requests and reads.
        version: Of the worker.
        commit: The commit it was built from.
        list_plugins: Lists the plugins; may import them, so it is called on another thread.
        request_timeout_s: How long a request may take.
    """

    herder: Herder
    version: str
    commit: str
    list_plugins: Callable[[], Sequence[PluginInfo]]
    request_timeout_s: float = REQUEST_TIMEOUT_S

    async def answer(self, future: Future[T]) -> T:
        """Awaits a request of the herder; after the time limit the request goes on, but the caller is told.

        Raises:
            TimeoutError: it took too long.
        """
        waiting = asyncio.wrap_future(future)
        done, _ = await asyncio.wait({waiting}, timeout=self.request_timeout_s)
        if not done:
            raise TimeoutError
        return waiting.result()


def services(request: Request) -> Services:
    """The services of the application that got this request."""
    found = request.app.state.services
    assert isinstance(found, Services)
    return found


def flag(request: Request, name: str, default: bool) -> bool:
    """A boolean query parameter; any text other than ``true`` means false."""
    text = request.query_params.get(name)
    return default if text is None else text.strip().lower() == "true"
