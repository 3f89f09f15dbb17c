"""A proxy between a worker and its broker, which alters answers if a test says so.

Main types: `KafkaProxy`, `Odd` (what may be wrong with an answer). Clients find the broker through the proxy alone: it
puts its own port in the place of the broker's into every answer that names it. Requests pass as they are.

Threads: the proxy has one of its own with an event loop; `odd` is set by the test's and read by that one.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
import threading
from collections.abc import Collection
from enum import Enum, auto
from types import TracebackType
from typing import Final

_HOST: Final = "127.0.0.1"
_SIZE: Final = struct.Struct(">i")
_LATE_S: Final = 3.0
#: Answers with record batches are longer.
_HAS_RECORDS: Final = 400


class Odd(Enum):
    """The ways in which an answer can be wrong."""

    #: Of the right size and for the right request, but of random bytes.
    MALFORMED = auto()
    #: Ends too early, and its size says the same.
    SHORT = auto()
    #: The connection ends in the middle of it.
    CUT = auto()
    #: Its size is two gigabytes.
    ENDLESS = auto()
    #: Its size is below zero.
    NEGATIVE = auto()
    #: Comes after some seconds, and so does all that is behind it.
    LATE = auto()
    #: Comes behind the one that is to follow it.
    MIXED_UP = auto()
    #: Comes twice.
    TWICE = auto()
    #: A bit among its records has fallen over.
    FLIPPED = auto()


class KafkaProxy:
    """A context in which a broker is served at another port.

    Args:
        broker_port: of the broker.

    Attributes:
        port: Where clients connect.
        odd: What is done to some of the answers; empty for nothing.
    """

    def __init__(self, broker_port: int) -> None:
        self.port = 0
        self.odd: Collection[Odd] = ()
        self._broker_port = broker_port
        self._chance = random.Random(0)
        self._share = 0.3
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kafka-proxy")
        self._open: set[asyncio.Task[None]] = set()

    @property
    def servers(self) -> str:
        """The `bootstrap.servers` of clients."""
        return f"{_HOST}:{self.port}"

    def __enter__(self) -> KafkaProxy:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, _HOST, 0), self._loop).result(
            10
        )
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    # ---------------------------------------------------------------- the proxy's thread
    async def _end(self) -> None:
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            broker, to_broker = await asyncio.open_connection(_HOST, self._broker_port)
            try:
                # Whoever ends first ends both.
                pumps = {
                    asyncio.ensure_future(one) for one in (_copy(client, to_broker), self._answer(broker, to_client))
                }
                _, left = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                for pump in left:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
            finally:
                to_broker.close()
        except (OSError, asyncio.CancelledError):
            pass  # A broker that is down, or the end of the test.
        finally:
            to_client.close()
            self._open.discard(task)

    async def _answer(self, broker: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        old, new = (_HOST.encode() + _SIZE.pack(port) for port in (self._broker_port, self.port))
        held = b""
        while True:
            (size,) = _SIZE.unpack(await broker.readexactly(_SIZE.size))
            body = (await broker.readexactly(size)).replace(old, new)
            odd = self._chance.choice(sorted(self.odd, key=lambda one: one.value)) if self._is_odd() else None
            if odd is Odd.MIXED_UP and not held:
                held = _framed(body)
                continue
            if odd is Odd.LATE:
                await asyncio.sleep(_LATE_S)
            client.write(self._bytes(odd, body) + held)
            held = b""
            await client.drain()
            if odd is Odd.CUT:
                return

    def _is_odd(self) -> bool:
        return bool(self.odd) and self._chance.random() < self._share

    def _bytes(self, odd: Odd | None, body: bytes) -> bytes:
        match odd:
            case Odd.MALFORMED:
                return _framed(body[:4] + self._chance.randbytes(len(body) - 4))
            case Odd.SHORT:
                return _framed(body[: max(4, len(body) // 2)])
            case Odd.CUT:
                return _framed(body)[: 2 + len(body) // 2]
            case Odd.ENDLESS:
                return _SIZE.pack(2**31 - 1) + body
            case Odd.NEGATIVE:
                return _SIZE.pack(-5) + body
            case Odd.TWICE:
                return _framed(body) * 2
            case Odd.FLIPPED if len(body) > _HAS_RECORDS:
                place = self._chance.randrange(len(body) * 3 // 4, len(body) - 8)
                return _framed(body[:place] + bytes([body[place] ^ 16]) + body[place + 1 :])
            case _:
                return _framed(body)


def _framed(body: bytes) -> bytes:
    return _SIZE.pack(len(body)) + body


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        target.write(data)
        with contextlib.suppress(ConnectionError):
            await target.drain()
