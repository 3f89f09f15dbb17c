"""The shared services of the route modules: the herder, the plugins, log levels, and requests with a time limit.

Main types: ``Services``, ``RequestTimeout``. Used on the REST thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, TypeVar

from starlette.requests import Request

from penstock.herder import Herder
from penstock.rest.worker_client import WorkerClient
from penstock.telemetry import Metrics
from penstock.telemetry.logs import Loggers
from penstock.threads import in_own_thread
from penstock.validation.plugin_checks import PluginCatalog

T = TypeVar("T")

REQUEST_TIMEOUT_S = 90.0
#: The time that a reader waits for classes to declare secrets; until then less is shown.
_LOOK_S: Final = 2.0


class RequestTimeout(Exception):
    """A request took too long; its work continues, and the caller gets this error."""


@dataclass(frozen=True)
class Services:
    """The services that routes work with.

    Attributes:
        herder: Serves requests and reads.
        version: The worker's version.
        commit: The commit it was built from.
        plugins: The catalog of plugins; it may import them, so its calls run on other threads.
        loggers: The log levels.
        metrics: The worker's metrics.
        topic_tracking: True if the topics of connectors are tracked.
        topic_reset: True if users may reset them.
        request_timeout_s: The time limit of a request.
        workers: Sends requests to other workers of the group; None if there is no group.
        scheme: The scheme of the addresses of all workers.
        own_paths: The worker's files and directories by the settings that name them: no answer shows them.
    """

    herder: Herder
    version: str
    commit: str
    plugins: PluginCatalog
    loggers: Loggers = field(default_factory=Loggers)
    metrics: Metrics = field(default_factory=Metrics)
    topic_tracking: bool = True
    topic_reset: bool = True
    request_timeout_s: float = REQUEST_TIMEOUT_S
    workers: WorkerClient | None = None
    scheme: str = "http"
    own_paths: Mapping[str, str] = field(default_factory=dict, repr=False)

    async def answer(self, future: Future[T], name: str | None = None, *, ends: bool = False) -> T:
        """Awaits a request.

        Args:
            future: The answer of the request.
            name: The connector that it is about, to name its present step after a timeout.
            ends: True for a read, whose work ends after a timeout. A change continues.

        Raises:
            RequestTimeout: it took too long.
        """
        waiting = asyncio.wrap_future(future)
        done, _ = await asyncio.wait({waiting}, timeout=self.request_timeout_s)
        if not done:
            then = "The request continues; look at the status of the connector later"
            if ends:
                waiting.cancel()
                then = "What was begun for it is ended"
            doing = None if name is None else self.herder.busy_with(name)
            raise RequestTimeout(
                "Request timed out. The worker is currently "
                + (doing or f"busy with {'other work' if name is None else f'connector {name}'}")
                + f". {then}"
            )
        return waiting.result()

    async def look_at(self, names: Iterable[str]) -> None:
        """Waits a moment for the facts of the classes of connectors: the secret settings, source or sink."""
        if (looking := self.herder.look_at(names)) is not None:
            await asyncio.wait({asyncio.wrap_future(looking)}, timeout=_LOOK_S)

    async def on_thread(self, name: str, call: Callable[[], T], *, ends: bool = False) -> T:
        """Runs a call that may block on a thread of its own; see ``answer`` for ``ends``."""
        future, thread = in_own_thread(name, call)
        try:
            return await self.answer(future, ends=ends)
        except RequestTimeout:
            if ends:
                thread.end_work()
            raise


def services(request: Request) -> Services:
    """The services of the application that got this request."""
    found = request.app.state.services
    assert isinstance(found, Services)
    return found


def flag(request: Request, name: str, default: bool) -> bool:
    """A boolean query parameter; any text other than ``true`` means false."""
    text = request.query_params.get(name)
    return default if text is None else text.strip().lower() == "true"
