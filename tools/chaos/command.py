"""The command `bin/chaos`: runs faults against a worker, one after the other, and says what became of each.

Main objects: `QUICK` and `LONG`, the cases by name. A case is a function of a `Stage`; all of them share one worker.
Thread: the main one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from testkit.processes import s3_server

from penstock.broker import EmbeddedBroker
from tools.chaos import bulk, connectors, kills, lakes
from tools.chaos.broker_rounds import ROUNDS, BrokerRounds
from tools.chaos.cases import data_cases, rest_cases, surroundings_cases, task_cases
from tools.chaos.distributed import GroupChaos, plan
from tools.chaos.stage import Stage

Case = Callable[[Stage], None]


def _named(*cases: Case) -> dict[str, Case]:
    return {case.__name__.replace("_", "-"): case for case in cases}


#: What `bin/test` runs too.
QUICK: Final[Mapping[str, Case]] = _named(
    task_cases.endless_loop,
    task_cases.blocked_stop,
    task_cases.leaked_threads,
    task_cases.used_up_files,
    data_cases.long_line,
    data_cases.long_message,
    data_cases.deep_json,
    data_cases.many_shapes,
    data_cases.recreated_topic,
    rest_cases.hostile_clients,
    surroundings_cases.full_offsets_disk,
    surroundings_cases.odd_answers,
    surroundings_cases.moved_clock,
)
LONG: Final[Mapping[str, Case]] = _named(
    data_cases.million_shapes,
    data_cases.thousand_partitions,
    data_cases.shrunken_topic,
    surroundings_cases.each_odd_answer,
    surroundings_cases.full_broker_disk,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the cases; the exit code is 1 when one failed."""
    parser = argparse.ArgumentParser(prog="bin/chaos", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="name the cases and what they do, and run none")
    parser.add_argument("--only", action="append", metavar="NAME", help="run this case; may be given several times")
    parser.add_argument("--keep", type=Path, help="keep all files, logs too, in a new directory in this one")
    parser.add_argument("--distributed", action="store_true", help="faults at random in a group of three workers")
    parser.add_argument(
        "--connectors",
        nargs="?",
        const="all",
        choices=("all", "tables", "lakes"),
        help="kills at random while rows go from table to table (tables), and from a topic into files and tables on an "
        "object store (lakes), each way twice; left out: both",
    )
    parser.add_argument("--bulk", action="store_true", help="kills at random while executors write five bulk loads")
    parser.add_argument(
        "--minutes",
        type=float,
        help="how long there are faults: 20 with --distributed, 3 with --bulk and with each of --connectors",
    )
    parser.add_argument("--seed", type=int, default=1, help="of these: which faults there are")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="of --distributed: stops and kills of the broker behind the faults"
    )
    parser.add_argument("--lines", type=int, default=200, help="of --distributed: 4 times a second, for each source")
    options = parser.parse_args(arguments)

    def minutes(usual: float) -> float:
        return usual if options.minutes is None else float(options.minutes)

    cases = {**QUICK, **LONG}
    if unknown := sorted(set(options.only or ()) - set(cases)):
        parser.error(f"no such case: {', '.join(unknown)}; bin/chaos --list names them")
    if options.list:
        for name, case in cases.items():
            print(f"{name:28} {'quick' if name in QUICK else 'long ':5}  {(case.__doc__ or '').splitlines()[0]}")
        return 0
    chosen = {name: case for name, case in cases.items() if not options.only or name in options.only}
    with ExitStack() as opened:
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            scratch = tempfile.mkdtemp(prefix="chaos-", dir=options.keep)
        else:
            scratch = opened.enter_context(tempfile.TemporaryDirectory(prefix="penstock-chaos-"))
        if options.distributed:
            return run_group(Path(scratch), options.seed, minutes(20.0), options.lines, options.rounds)
        if options.connectors:
            runs = {"tables": run_tables, "lakes": run_lakes}
            chosen_runs = [run for name, run in runs.items() if options.connectors in ("all", name)]
            return max(one(Path(scratch), options.seed, minutes(3.0)) for one in chosen_runs)
        if options.bulk:
            return run_bulk(Path(scratch), options.seed, minutes(3.0))
        return run(chosen, Path(scratch))


def run_group(directory: Path, seed: int, minutes: float, lines_at_once: int, rounds: int = 0) -> int:
    """Runs the faults of a seed in a group of workers, then rounds in which the broker is stopped or killed.

    Returns:
        1 when something was lost or does not run again, else 0.
    """
    with EmbeddedBroker(directory / "kafka", heap="1g") as broker:
        try:
            if minutes > 0:
                GroupChaos(directory, broker, lines_at_once).run(plan(seed, minutes * 60))
            if rounds > 0:
                below = directory / "rounds"
                below.mkdir()
                BrokerRounds(below, broker).run(rounds, seed)
        except AssertionError:
            print(f"FAILED with --seed {seed}\n{traceback.format_exc()}", flush=True)
            return 1
    return 0


def run_tables(directory: Path, seed: int, minutes: float, workers: int = 2) -> int:
    """Runs the kills of a seed while rows go from table to table: exactly once, and then at least once.

    Returns:
        1 if something was lost, doubled or does not run again, else 0.
    """
    for exactly_once in (True, False):
        name = "exactly once" if exactly_once else "at least once"
        print(f"{name}, {minutes} minutes", flush=True)
        below = directory / name.replace(" ", "-")
        with EmbeddedBroker(below / "kafka", heap="1g") as broker:
            try:
                planned = kills.plan(connectors.VICTIMS, seed, minutes * 60, workers, connectors.PAUSE_S)
                connectors.TableChaos(below, broker, exactly_once, workers).run(planned)
            except AssertionError:
                print(f"FAILED {name} with --seed {seed}\n{traceback.format_exc()}", flush=True)
                return 1
    return 0


def run_lakes(directory: Path, seed: int, minutes: float, workers: int = 2) -> int:
    """Runs the kills of a seed while a topic goes into files and tables: on moto's server, and on a second one.

    Returns:
        1 if something was lost, doubled or does not run again, else 0.
    """
    program = s3_server.installed()
    if program is None:
        print(f"s3s-fs is not installed, so moto's server is the only store ({s3_server.PROGRAM} names it)", flush=True)
    for store in (None, program) if program else (None,):
        name = Path(store or "moto").name
        print(f"a topic into {name}, {minutes} minutes", flush=True)
        below = directory / f"lakes-{name}"
        with EmbeddedBroker(below / "kafka", heap="1g") as broker:
            try:
                planned = kills.plan(lakes.VICTIMS, seed, minutes * 60, workers, lakes.PAUSE_S)
                lakes.LakeChaos(below, broker, store, workers).run(planned)
            except AssertionError:
                print(f"FAILED on {name} with --seed {seed}\n{traceback.format_exc()}", flush=True)
                return 1
    return 0


def run_bulk(directory: Path, seed: int, minutes: float) -> int:
    """Runs the kills of a seed while executors write bulk loads.

    Returns:
        1 if something was lost, doubled or does not run again, else 0.
    """
    with EmbeddedBroker(directory / "kafka", heap="1g") as broker:
        try:
            planned = kills.plan(bulk.VICTIMS, seed, minutes * 60, bulk.WORKERS, bulk.PAUSE_S)
            bulk.BulkChaos(directory, broker, minutes).run(planned)
        except AssertionError:
            print(f"FAILED with --seed {seed}\n{traceback.format_exc()}", flush=True)
            return 1
    return 0


def run(cases: Mapping[str, Case], directory: Path) -> int:
    """Runs cases on one worker, and on another one after each that failed; 1 when one failed, else 0."""
    left, failed = list(cases.items()), 0
    with EmbeddedBroker(directory / "kafka", heap="1g") as broker:
        while left:
            try:
                with Stage(directory / f"worker-{len(left)}", broker) as stage:
                    while left:
                        name, case = left.pop(0)
                        began = time.monotonic()
                        case(stage)
                        print(f"ok     {name:28} {time.monotonic() - began:6.1f} s", flush=True)
            except Exception:
                failed = 1
                print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
