"""A standalone worker that ends itself by SIGKILL at a named point, when a test asks for that.

`python -m penstock.testing.ending_worker ORDERS WORKER.PROPERTIES [CONNECTOR...]`: as soon as the file ORDERS names a
point of the data path, the worker kills itself the next time it passes it; the file is removed first. The points:
`after-send-before-ack`, `after-ack-before-offsets` (source), `temporary-written`, `renamed` (offsets file),
`sink.after_put`, `sink.closing`, `sink.closed` (sink). Any thread of the worker passes them.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from penstock.cli.standalone import run
from penstock.telemetry import configure_logging


def main() -> None:
    """Runs the worker; a SIGKILL has no exit code of its own."""
    orders = Path(sys.argv[1])

    def end_here(point: str) -> None:
        try:
            wanted = orders.read_text()
        except FileNotFoundError:
            return
        if wanted == point:
            orders.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    configure_logging()
    # Connectors of a test lie in its directory.
    sys.path.append(os.getcwd())
    sys.exit(run(sys.argv[2], sys.argv[3:], probe=end_here))


if __name__ == "__main__":
    main()
