"""`penstock spark pack`: makes the archive that Spark's executors need for bulk work.

Main object: the click group `spark`. Thread: the main thread of the command.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from penstock.cli.output import complain, say
from penstock.cli.session import EXIT_REFUSED
from penstock.errors import ConnectException


@click.group()
def spark() -> None:
    """Commands for the executors of a Spark cluster."""


@spark.command()
@click.argument("archive", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--add",
    "more",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="A module, or a folder of modules, of your own: transforms and converters. May be given several times.",
)
def pack(archive: Path, more: tuple[Path, ...]) -> None:
    """Make ARCHIVE (.tar.gz) of Penstock and its dependencies, for `spark.archives` of a worker.

    For executors that have Spark, and the Python and platform of this machine, but not Penstock.
    """
    from penstock.worker.bulk.packing import pack as make
    from penstock.worker.bulk.shipping import ARCHIVE

    try:
        names = make(archive, more)
    except ConnectException as error:
        complain(str(error))
        sys.exit(EXIT_REFUSED)
    say(f"Made {archive} ({archive.stat().st_size / 1e6:.0f} MB) of {', '.join(names)}")
    say(f"In the worker's file: spark.archives={archive.resolve()}#{ARCHIVE}")
    say(f"And where executors have no PyArrow: spark.executorEnv.PYTHONPATH={ARCHIVE}")
