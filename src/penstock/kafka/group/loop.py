"""The event loop of a group's member, on kafka-python.

Main type: ``GroupLoop``. Only this module, ``coordinator`` and ``connections`` import that library.

Thread: the member's own; ``GroupLoop.post`` any.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.future import Future
from kafka.net.compat import KafkaNetClient
from kafka.net.selector import NetworkSelector
from kafka.net.wakeup_notifier import WakeupNotifier

from penstock.errors import SaslAuthenticationException
from penstock.kafka.group.calls import GroupCalls
from penstock.kafka.group.connections import LOGIN_ERRORS, Access, GroupConnections
from penstock.kafka.group.events import LOGIN_REFUSED
from penstock.kafka.group.settings import GroupSettings

__all__ = ["GroupLoop", "KafkaError", "KafkaTimeoutError", "error_code"]

_LAST_TURNS: Final = 20
_FRESH_EACH_S: Final = 1.0
_FRESH_AFTER_FAILURE_S: Final = 30.0


def error_code(error: KafkaError) -> str:
    """Kafka's name of an error."""
    if isinstance(error, LOGIN_ERRORS):
        return LOGIN_REFUSED
    return str(getattr(error, "message", None) or type(error).__name__)


class GroupLoop:
    """An event loop with the connections to brokers.

    Args:
        settings: The settings of the member.
        access: Encryption, login and name lookup for brokers.
        refused: Called with code and text when a broker rejects the connection permanently; returns the seconds for
            which not to try that broker again.
    """

    def __init__(self, settings: GroupSettings, access: Access, refused: Callable[[str, str], float]) -> None:
        self._selector: Any = NetworkSelector(client_id=settings.client_id)
        self._access = access
        self._found = False
        self._has_tokens = settings.sasl is not None and settings.sasl.tokens is not None
        self._fresh_at = 0.0
        self.manager: Any = GroupConnections(self._selector, settings, access, refused, self.elsewhere)
        self.client: Any = KafkaNetClient(net=self._selector, manager=self.manager)

    def turn(self) -> None:
        """Waits until there is work, and does it."""
        self._selector.poll()

    def begin(self, coroutine: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs a coroutine concurrently with the others, until it ends or the loop is closed."""
        self._selector.call_soon(coroutine)

    def post(self, call: Callable[[], None]) -> None:
        """Runs a call on the loop; does nothing when the loop has ended. Thread: any."""
        try:
            self._selector.call_soon_threadsafe(partial(_once, call))
        except RuntimeError:
            pass

    def bell(self) -> Any:
        """An event that a coroutine waits for, with or without a time limit; ``notify`` wakes it."""
        return WakeupNotifier(self._selector)

    def elsewhere(self, calls: GroupCalls, call: Callable[[], object]) -> Any:
        """Runs a call on another thread; a coroutine waits for its result or exception."""
        result = Future()

        def ended(value: object, error: BaseException | None) -> None:
            self.post((lambda: result.success(value)) if error is None else (lambda: result.failure(error)))

        calls.submit(call, ended)
        return result

    async def within(self, awaited: Any, timeout_ms: float) -> Any:
        """Waits for the result of ``elsewhere``.

        Raises:
            KafkaTimeoutError: there is no result in time; another call may wait for it again.
        """
        return await self.manager.wait_for(awaited, timeout_ms)

    async def pause(self, seconds: float) -> None:
        """Waits."""
        await self._selector.sleep(seconds)

    async def found_brokers(self, timeout_ms: float) -> bool:
        """Asks the bootstrap servers once for the brokers; True if they have responded by now."""
        if not self._found:
            try:
                await self.within(self.manager.bootstrap_async(), timeout_ms)
            except KafkaTimeoutError:
                return False
            self._found = True
        return True

    def keep_login_fresh(self) -> None:
        """Fetches another token before the last one expires: the next login cannot wait for it."""
        now = time.monotonic()
        if not self._has_tokens or self._access.credentials is None or now < self._fresh_at:
            return
        try:
            self._access.credentials.mechanism("")
            self._fresh_at = now + _FRESH_EACH_S
        except SaslAuthenticationException:
            # The next login reports it.
            self._fresh_at = now + _FRESH_AFTER_FAILURE_S

    def find_brokers_anew(self) -> None:
        """Asks the bootstrap servers again, because brokers may have new addresses. An attempt in progress
        continues.
        """
        self.manager.bootstrap_async()

    def close(self, ended: Callable[[], bool]) -> None:
        """Ends all connections.

        Args:
            ended: True when every call that ends by itself has ended; they get a moment.
        """
        for _ in range(_LAST_TURNS):
            if ended():
                break
            self._selector.poll(timeout_ms=1)
        self.client.close()


async def _once(call: Callable[[], None]) -> None:
    call()
