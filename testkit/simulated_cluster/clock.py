"""Virtual time: an event loop whose clock jumps to the next thing that is to happen.

Main types: ``VirtualLoop``; ``Stalled``, raised when nothing is to happen any more; ``NodeLoop``, what a herder takes
for its ``HerderLoop``.

Thread: one, for everything.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from penstock.errors import ConflictException, ConnectException, KafkaException

T = TypeVar("T")

#: After that time nobody waits for another worker's answer any more.
_ANSWER_S: Final = 30.0


class Stalled(Exception):
    """Nothing is to happen any more."""


class _Selector(selectors.BaseSelector):
    """Waits for nothing: what would be waited for comes at once, and the clock shows that time."""

    def __init__(self, jump: Callable[[float | None], None]) -> None:
        self._jump = jump
        self._real = selectors.SelectSelector()

    def register(self, fileobj: object, events: int, data: object = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)  # type: ignore[arg-type]

    def unregister(self, fileobj: object) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)  # type: ignore[arg-type]

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        if not ready and timeout != 0:
            self._jump(timeout)
        return ready

    def close(self) -> None:
        self._real.close()


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with a clock of its own, in seconds from 0."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_Selector(self._pass))

    def time(self) -> float:
        """See asyncio."""
        return self._now

    def now_ms(self) -> int:
        """Milliseconds of that clock, behind a day in the past so that differences stay positive."""
        return 86_400_000 + round(self._now * 1000)

    def run_for(self, seconds: float) -> None:
        """Lets so much time pass."""
        self.call_later(seconds, self.stop)
        self.run_forever()

    def _pass(self, seconds: float | None) -> None:
        if seconds is None:
            raise Stalled
        self._now += seconds


class NodeLoop:
    """A herder's thread, as one of several in one event loop.

    Args:
        loop: The event loop.
        delay_s: How long a call takes that runs on a thread of its own.

    Attributes:
        frozen: Nothing begins or goes on from outside; it does when this ends with ``thaw``.
        dead: Nothing happens any more.
    """

    def __init__(self, loop: VirtualLoop, delay_s: Callable[[], float]) -> None:
        self._loop = loop
        self._delay_s = delay_s
        self._running: set[asyncio.Task[object]] = set()
        self._held: list[Callable[[], None]] = []
        self._thawed = asyncio.Event()
        self._thawed.set()
        self.frozen = False
        self.dead = False
        self.errors: list[BaseException] = []

    def start(self) -> None:
        """See ``HerderLoop``."""

    def submit(self, request: Callable[[], Coroutine[object, object, T]]) -> Future[T]:
        """See ``HerderLoop``."""
        answer: Future[T] = Future()

        def begin() -> None:
            task = self._loop.create_task(self._serve(request, answer))
            self._keep(task)

        self.post(begin)
        return answer

    def post(self, event: Callable[[], None]) -> None:
        """See ``HerderLoop``."""
        if self.dead:
            return
        if self.frozen:
            self._held.append(event)
        else:
            self._loop.call_soon(self._unless_dead, event)

    def spawn(self, name: str, request: Callable[[], Coroutine[object, object, None]]) -> None:
        """See ``HerderLoop``."""
        self.submit(request).add_done_callback(self._note)

    def begin(self, name: str, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """See ``HerderLoop``."""
        task = self._loop.create_task(work)
        self._keep(task)
        task.add_done_callback(lambda done: None if done.cancelled() else self._note(done))
        return task

    async def off_loop(self, name: str, call: Callable[[], T]) -> T:
        """See ``HerderLoop``."""
        await asyncio.sleep(self._delay_s())
        await self._thawed.wait()
        result = call()
        if isinstance(result, Future):
            try:
                return await asyncio.wait_for(asyncio.wrap_future(result), _ANSWER_S)
            except TimeoutError:
                raise ConflictException("no answer") from None
        await asyncio.sleep(0)
        return result

    # ------------------------------------------------------------------ faults
    def freeze(self) -> None:
        """As SIGSTOP: nothing goes on."""
        self.frozen = True
        self._thawed.clear()

    def thaw(self) -> None:
        """As SIGCONT."""
        self.frozen = False
        held, self._held = self._held, []
        for event in held:
            self.post(event)
        self._thawed.set()

    def die(self) -> None:
        """As SIGKILL."""
        self.dead = True
        for task in list(self._running):
            task.cancel()

    def has_died(self) -> bool:
        """True if nothing happens any more, asked anew."""
        return self.dead

    def _unless_dead(self, event: Callable[[], None]) -> None:
        if self.frozen:
            self._held.append(event)
        elif not self.dead:
            event()

    def _keep(self, task: asyncio.Task[T]) -> None:
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def _note(self, done: Future[None] | asyncio.Task[None]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None and not self.dead and not isinstance(error, ConnectException | KafkaException):
            self.errors.append(error)

    async def _serve(self, request: Callable[[], Coroutine[object, object, T]], answer: Future[T]) -> None:
        try:
            result = await request()
        except BaseException as error:
            if not answer.done():
                answer.set_exception(error if isinstance(error, Exception) else ConflictException("The worker is gone"))
            if not isinstance(error, Exception):
                raise
        else:
            if not answer.done():
                answer.set_result(result)
