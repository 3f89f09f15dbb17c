"""Gives back the JVM's side of DataFrames as soon as a batch is done with them.

The JVM keeps an object for as long as Python may use it, and with a DataFrame the batch it was made of. Py4J hears of
dropped objects in the order they were dropped and passes them on one at a time, in the background: behind the thousands
of columns of a new plan, batches pile up in the JVM until its memory is full.

What else a job has made, such as the server that its rows came through, is in a cycle each: Py4J's objects know their
methods, and these the object. A worker's collector runs seldom, so the young objects are looked through here.

Main functions: ``release`` for what PySpark has made, ``forget`` for Java objects that one has in hand. Thread: that of
the job, while its session is up.
"""

from __future__ import annotations

import gc
import itertools
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

#: Objects that were in use while another thread's job ended are older: each so many jobs these are looked through too.
_OLDER_EACH: Final = 8
_jobs = itertools.count(1)


def release(frames: Iterable[DataFrame]) -> None:
    """Forgets DataFrames that nobody uses any more; those of a Spark Connect session have nothing in a JVM of ours."""
    forget(java for frame in frames if (java := getattr(frame, "_jdf", None)) is not None)
    gc.collect(1 if next(_jobs) % _OLDER_EACH == 0 else 0)


def forget(objects: Iterable[Any]) -> None:
    """Lets the JVM forget objects of its own that nobody uses any more."""
    for java in objects:
        _forget(java)


def _forget(java: Any) -> None:
    from py4j.finalizer import ThreadSafeFinalizer

    client, name = java._gateway_client, java._target_id
    java._methods.clear()
    ThreadSafeFinalizer.remove_finalizer(f"{client.address}{client.port}{name}")
    try:
        client.garbage_collect_object(name, False)
    except Exception as error:
        # The JVM is gone, and the object with it.
        log.debug("An object of the JVM could not be released: %s", error)
