"""A standalone worker that ends itself by SIGKILL at a named point, when a test asks for that.

`python -m testkit.processes.ending_worker ORDERS WORKER.PROPERTIES [CONNECTOR...]`: as soon as the file ORDERS names a
point of the data path, the worker kills itself the next time it passes it; the file is removed first. The points:
`after-send-before-ack`, `after-ack-before-offsets` (source), `temporary-written`, `renamed` (offsets file),
`sink.after_put`, `sink.closing`, `sink.closed` (sink). Any thread of the worker passes them. Spark's Python workers
pass `before-commit-N` and `after-commit-N`, where N is a Spark partition of a bulk run, and end themselves.
"""

from __future__ import annotations

import os
import sys

from penstock.cli.worker.standalone import run
from penstock.telemetry import configure_logging
from testkit.processes.end_at import EndAt


def main() -> None:
    """Runs the worker; a SIGKILL has no exit code of its own."""
    configure_logging()
    # Connectors of a test lie in its directory.
    sys.path.append(os.getcwd())
    sys.exit(run(sys.argv[2], sys.argv[3:], probe=EndAt(os.path.abspath(sys.argv[1]))))


if __name__ == "__main__":
    main()
