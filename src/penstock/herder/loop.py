"""The herder's thread: an event loop that runs requests as coroutines and answers them with futures.

While one request waits for a connector's or task's thread, other requests run; only the code between two ``await``
touches the herder's state, so no lock is needed for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from functools import partial
from typing import Any, TypeVar

from penstock.errors import ConnectException, as_exception
from penstock.threads import OwnedThread, in_own_thread

T = TypeVar("T")
log = logging.getLogger(__name__)


class HerderLoop:
    """A thread with a queue of requests.

    Thread: ``start`` and ``stop`` by the owner; ``submit``, ``post`` and ``spawn`` from any thread.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = OwnedThread(name, self._run)
        self._closing = False
        self._running: set[asyncio.Task[object]] = set()

    def start(self) -> None:
        """Starts the thread; requests made before are served now."""
        self._thread.start()

    def submit(self, request: Callable[[], Coroutine[object, object, T]]) -> Future[T]:
        """Queues a request; its answer is ``ConnectException`` when the worker is shutting down."""
        answer: Future[T] = Future()
        if self._closing:
            answer.set_exception(ConnectException("Worker is shutting down"))
            return answer

        def begin() -> None:
            if answer.cancelled():
                return
            task = self._loop.create_task(self._serve(request, answer))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            # A caller that abandons a request cancels its answer.
            answer.add_done_callback(lambda ended: self.post(partial(_cancel, task)) if ended.cancelled() else None)

        self._loop.call_soon_threadsafe(begin)
        return answer

    def post(self, event: Callable[[], None]) -> None:
        """Queues a short call without an answer; dropped after the end."""
        try:
            self._loop.call_soon_threadsafe(event)
        except RuntimeError:
            log.debug("An event came after the end of the herder")

    def spawn(self, name: str, request: Callable[[], Coroutine[object, object, None]]) -> None:
        """As ``submit`` for a request without a waiting caller: its failure is logged."""

        self.submit(request).add_done_callback(lambda answer: self._log_failure(name, answer))

    def begin(self, name: str, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """As ``spawn``, from the herder's own thread: the work begins when that is next free, and can be awaited."""
        task = self._loop.create_task(work)
        self._running.add(task)

        task.add_done_callback(self._running.discard)
        task.add_done_callback(lambda ended: self._log_failure(name, ended))
        return task

    def _log_failure(self, name: str, ended: Future[None] | asyncio.Task[None]) -> None:
        error = None if ended.cancelled() else ended.exception()
        if error is not None and not self._closing:
            log.error("%s: %s", name, error, exc_info=not isinstance(error, ConnectException) and error)

    async def off_loop(self, name: str, call: Callable[[], T], *, ends: bool = False) -> T:
        """Runs a call that may block on a thread of its own.

        ``ends`` ends the call when no caller waits any more; only for calls that change nothing.
        """
        future, thread = in_own_thread(name, call)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if ends:
                thread.end_work()
            raise

    def stop(self, last: Callable[[], Coroutine[object, object, None]], timeout_s: float) -> bool:
        """Refuses further requests, runs one last one, and ends the thread; False when the last request did not end in
        time.
        """
        answer = self.submit(last)
        self._closing = True
        try:
            answer.result(timeout_s)
            in_time = True
        except TimeoutError:
            in_time = False
        except Exception:
            log.exception("The herder's shutdown failed")
            in_time = False
        self.post(self._loop.stop)
        return self._thread.join(5) and in_time

    async def _serve(self, request: Callable[[], Coroutine[object, object, T]], answer: Future[T]) -> None:
        # A caller may cancel its answer at any moment.
        settled = contextlib.suppress(InvalidStateError)
        try:
            result = await request()
        except asyncio.CancelledError:
            with settled:
                answer.set_exception(ConnectException("Worker is shutting down"))
            raise
        except BaseException as error:
            with settled:
                answer.set_exception(as_exception(error))
        else:
            with settled:
                answer.set_result(result)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            for task in list(self._running):
                task.cancel()
            if self._running:
                self._loop.run_until_complete(asyncio.gather(*self._running, return_exceptions=True))
        finally:
            self._loop.close()


def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
