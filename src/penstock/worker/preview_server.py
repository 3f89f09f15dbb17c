"""A process that makes the processes which read sources for previews: forked, each is there in milliseconds.

A Python process of its own for each preview would spend half a second of CPU on importing the same modules, which
connectors that run would have to do without. This one imports them once, at a low priority that its children inherit.

Run as ``python -m penstock.worker.preview_server FD`` with a socket on FD. Commands and answers are JSON:
``{"fork": true}`` with two files, the request and the pipe for what is read, is answered by ``{"pid": ...}``;
``{"end": pid}`` ends that process and all of its group, and is answered with ``{"cpu_s": ...}`` when it is gone. The
server ends, and its children with it, when the other side closes the socket, and when nobody has asked for some time.

Main function: ``main``. Thread: this process's main thread; the worker's side is ``penstock.worker.preview_source``.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
from typing import Any, Final

#: How much lower than the worker's the priority is: a preview must not slow connectors that run. Lower still, and on a
#: machine without an idle moment a preview's time would be over before its first step.
NICENESS: Final = 10
#: How long the server outlives the last question.
IDLE_S: Final = 120.0
MESSAGE_BYTES: Final = 4096
#: What every reader needs: imported once. Users' modules are imported in the children alone, as they are then.
_NEEDED: Final = ("pyarrow.compute", "penstock.connectors.file", "penstock.worker.preview_child")


def main() -> None:
    """Serves until the worker has gone, or asks for nothing any more."""
    # Ctrl-C goes to the worker, which closes the socket when it is done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in _NEEDED:
        importlib.import_module(name)
    gc.freeze()
    channel = socket.socket(fileno=int(sys.argv[1]))
    children: set[int] = set()
    try:
        while True:
            channel.settimeout(None if children else IDLE_S)
            try:
                data, files, _, _ = socket.recv_fds(channel, MESSAGE_BYTES, 2)
            except TimeoutError:
                return
            if not data:
                return
            command: dict[str, Any] = json.loads(data)
            if "fork" in command:
                pid = _fork(channel, files)
                children.add(pid)
                channel.sendall(json.dumps({"pid": pid}).encode())
            else:
                children.discard(command["end"])
                used = _end(command["end"])
                channel.sendall(json.dumps({"cpu_s": used}).encode())
    except ConnectionError:
        return
    finally:
        for pid in children:
            _end(pid)


def _fork(channel: socket.socket, files: list[int]) -> int:
    request, answers = files
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):
            # Here too, so that there is a group to end, however soon that is asked for.
            os.setpgid(pid, pid)
        os.close(request)
        os.close(answers)
        return pid
    try:
        # A group of its own: a source may start processes, which are to end with it. Not a session: some systems share
        # time among sessions first, and priorities count within one only.
        os.setpgid(0, 0)
        channel.close()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        from penstock.worker.preview_child import answer

        with os.fdopen(request, "rb") as asked, os.fdopen(answers, "wb") as found:
            answer(json.load(asked), found)
    finally:
        # Whatever the source has registered or left running: nothing of the server's runs in its child.
        os._exit(0)


def _end(pid: int) -> float:
    """Ends a process and its group; the CPU seconds it has used."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        _, _, usage = os.wait4(pid, 0)
        return usage.ru_utime + usage.ru_stime
    return 0.0


if __name__ == "__main__":
    main()
