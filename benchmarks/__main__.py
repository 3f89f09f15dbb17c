"""The command behind `bin/bench`: runs the workloads, prints the tables, writes the JSON report.

`bin/bench smt` measures transforms and converters by themselves instead, `bin/bench eos` sources that deliver exactly
once, `bin/bench shapes` sinks by the shape of their messages, `bin/bench lines` the workloads by processor time,
`bin/bench connectors` those of databases, `bin/bench cluster` bulk runs on executors; they have arguments of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.cluster import main as cluster
from benchmarks.connectors import main as connectors
from benchmarks.eos import main as eos
from benchmarks.figures import median
from benchmarks.lines import main as lines
from benchmarks.runs import Contestant, RunResult, as_dict, measure_latency, run_once
from benchmarks.shapes.command import main as shapes
from benchmarks.smt.command import main as smt
from benchmarks.workloads import ALL_SETS, CLIENTS, Environment, Workload
from penstock.broker import KAFKA_VERSION, EmbeddedBroker

JAVA_BATCH_SIZES = (500, 10_000)


def main() -> int:
    """Parses the arguments and runs; the exit code is 1 when a floor was missed.

    Floors are those of the clients' defaults; with larger batches a miss is only printed.

    Raises:
        RuntimeError: a run failed, or not all of its records arrived.
    """
    if sys.argv[1:2] == ["smt"]:
        return smt(sys.argv[2:])
    if sys.argv[1:2] == ["eos"]:
        return eos(sys.argv[2:])
    if sys.argv[1:2] == ["shapes"]:
        return shapes(sys.argv[2:])
    if sys.argv[1:2] == ["lines"]:
        return lines(sys.argv[2:])
    if sys.argv[1:2] == ["cluster"]:
        return cluster(sys.argv[2:])
    if sys.argv[1:2] == ["connectors"]:
        return connectors(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="bin/bench", description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000, help="records a run moves (2 million)")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="", help="workloads whose name contains this text")
    parser.add_argument("--set", choices=list(ALL_SETS), help="main; all with --only")
    parser.add_argument(
        "--clients", choices=list(CLIENTS), action="append", help="settings of the Kafka clients (default and larger)"
    )
    parser.add_argument("--latency", action="store_true", help="latency of lone lines and at half load")
    parser.add_argument("--no-java", action="store_true", help="Penstock alone, no ratios")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--keep", type=Path, help="use and keep this directory")
    options = parser.parse_args()
    chosen = ALL_SETS[options.set or ("all" if options.only else "main")]
    workloads = [one for one in chosen if options.only in one.name]
    report: dict[str, object] = {"records": options.records, "workloads": []}
    clients = options.clients or ["default", "larger"]
    _print_conditions(options.records, clients)
    ok = True
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        directory = options.keep or Path(scratch)
        directory.mkdir(parents=True, exist_ok=True)
        with EmbeddedBroker(directory / "kafka", heap="1g") as broker:
            environment = Environment(broker.bootstrap_servers, directory, options.records, clients[0])
            best_java: dict[str, int | None] = {}
            for workload in workloads:
                for name in clients:
                    conditions = replace(environment, clients=name)
                    entry, reached = _measure(workload, conditions, options.rounds, not options.no_java, best_java)
                    report["workloads"].append(entry)  # type: ignore[attr-defined]
                    ok = ok and (reached or name != "default")
            if options.latency:
                report["latency"] = _latency(environment, not options.no_java, workloads[0])
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))
    return 0 if ok else 1


def _print_conditions(records: int, clients: list[str]) -> None:
    print(
        f"{os.cpu_count()} cores, Python {platform.python_version()}, Kafka {KAFKA_VERSION}, {records:,} records a run"
    )
    for name in clients:
        settings = ", ".join(f"{key}={value}" for key, value in CLIENTS[name].items())
        print(f"client settings of both workers, {name}: {settings or 'none, each has its own defaults'}")


def _measure(
    workload: Workload, environment: Environment, rounds: int, with_java: bool, best_java: dict[str, int | None]
) -> tuple[dict[str, object], bool]:
    print(f"\n{workload.name} (client settings: {environment.clients})")
    contestants = [Contestant("penstock")]
    if with_java:
        contestants.insert(0, Contestant("java"))
        if workload.target == "topic":
            if environment.clients not in best_java:
                best_java[environment.clients] = _best_java_batch(workload, environment)
            contestants.insert(1, Contestant("java", best_java[environment.clients]))
    results: list[list[RunResult]] = []
    for number in range(rounds):
        order = contestants if number % 2 == 0 else contestants[::-1]
        results.append([_attempt(c, workload, environment) for c in order])
    ratios = []
    for round_results in results:
        java = [r.rate for r in round_results if r.contestant.startswith("java")]
        ours = [r.rate for r in round_results if r.contestant == "penstock"]
        if java and ours:
            ratios.append(ours[0] / max(java))
    entry: dict[str, object] = {
        "name": workload.name,
        "clients": environment.clients,
        "floor": workload.floor,
        "aim": workload.aim,
        "runs": [as_dict(r) for rs in results for r in rs],
    }
    if ratios:
        entry["ratio"] = median(ratios)
        rounds_text = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"  ratio {median(ratios):.2f} (floor {workload.floor}, aim {workload.aim}; rounds: {rounds_text})")
    return entry, not ratios or median(ratios) >= workload.floor


def _attempt(contestant: Contestant, workload: Workload, environment: Environment) -> RunResult:
    result = run_once(contestant, workload, environment)
    stages = " ".join(f"{key}={value:.0%}" for key, value in result.stages.items())
    print(
        f"  {result.contestant:26} {result.rate:10,.0f} records/s  peak {result.peak_mib:6,.0f} MiB  "
        f"CPU {result.cpu_s:6.1f} s  REST {result.rest_s:4.1f} s  "
        f"first record {result.first_record_s:4.1f} s  {stages}",
        flush=True,
    )
    return result


def _best_java_batch(workload: Workload, environment: Environment) -> int:
    """The file source's batch size with which Java does best, tried on a quarter of the records."""
    quarter = replace(environment, records=max(1, environment.records // 4), _filled={})
    rates = {size: run_once(Contestant("java", size), workload, quarter).rate for size in JAVA_BATCH_SIZES}
    best = max(rates, key=lambda size: rates[size])
    print(
        "  Java's batch.size: "
        + ", ".join(f"{size}: {rate:,.0f}/s" for size, rate in rates.items())
        + f"; {best} is taken"
    )
    return best


def _latency(environment: Environment, with_java: bool, workload: Workload) -> dict[str, object]:
    found: dict[str, object] = {}
    print("\nlatency, append until readable")
    for contestant in [Contestant("java"), Contestant("penstock")] if with_java else [Contestant("penstock")]:
        alone = measure_latency(contestant, workload, environment, None, 20)
        print(f"  {contestant.name:10} {alone['lines']} lone lines: {_spread(alone)}")
        found[contestant.name] = {"lone": alone}
    top = run_once(Contestant("penstock"), workload, environment).rate
    rate = top / 2
    loaded = measure_latency(Contestant("penstock"), workload, environment, rate, 40)
    from_start = f"with the first fifth, while the JVM compiles, p99 {loaded['p99_from_start_ms']:.0f} ms"
    print(f"  penstock   at {rate:,.0f} lines/s: {_spread(loaded)}; {from_start}")
    found["half_load"] = {"rate": rate, **loaded}
    return found


def _spread(delays: dict[str, float]) -> str:
    return f"p50 {delays['p50_ms']:.0f} ms, p99 {delays['p99_ms']:.0f} ms"


if __name__ == "__main__":
    began = time.monotonic()
    code = main()
    print(f"\n{time.monotonic() - began:.0f} s")
    sys.exit(code)
