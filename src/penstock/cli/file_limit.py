"""How many files and connections a worker may have open.

Main function: ``raise_file_limit``. Called once by a command's main thread, before anything is started.
"""

from __future__ import annotations

import logging
import resource

log = logging.getLogger(__name__)


def raise_file_limit() -> int:
    """Lets this process open as many files as its user may, as a JVM does for itself.

    Shells set 1024 by habit: a thousand clients of the REST API would leave no file to connectors.

    Returns:
        The limit from now on; -1 for none.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        log.warning("At most %d files and connections can be open; more was refused: %s", soft, error)
        return soft
    return hard
