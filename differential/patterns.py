"""Compares regular expressions with Java's own: ``python -m differential.patterns``.

A case is a random pattern with texts and a replacement (``pattern_cases.py``). Whether the texts match as a whole, what
is found in them first and what becomes of it are asked of ``JavaPattern`` and of ``java.util.regex``, which needs a
JDK. What Java takes may be refused here, with a message; another answer is a difference. ``--record FILE`` keeps cases
and Java's answers for the tests.

Main functions: ``main``, ``answer_here``, ``differences``. Thread: the main thread.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.java_source import NoCompilerError

from differential.java import java_answers
from differential.pattern_cases import PatternCases
from penstock.config.java_pattern import JavaPattern, compile_java
from penstock.errors import ConfigException, PatternTimeoutException
from penstock.transforms.topics import ReplacementError, replace_first

_PROGRAM: Final = "Patterns"
_SLOW: Final = {"slow": True}


def answer_here(case: Mapping[str, Any]) -> dict[str, Any]:
    """What Penstock makes of a case, in the form of Java's answer; ``uncertain`` are groups it does not vouch for."""
    try:
        pattern = compile_java(case["pattern"])
    except ConfigException as error:
        return {"refused": str(error.__cause__)}
    texts = [_of(pattern, text, case["replacement"]) for text in case["texts"]]
    return {"groups": pattern.groups, "texts": texts, "uncertain": sorted(pattern.uncertain_groups)}


def _of(pattern: JavaPattern, text: str, replacement: str) -> dict[str, Any]:
    try:
        match = pattern.find(text)
        found = None if match is None else [text[: match.start()], match[0], *match.groups()]
        whole, part, replaced = pattern.matches(text), pattern.found_in(text), _replaced(pattern, text, replacement)
    except PatternTimeoutException:
        return _SLOW
    return {"matches": whole, "found_in": part, "found": found, "replaced": replaced}


def _replaced(pattern: JavaPattern, text: str, replacement: str) -> str | None:
    try:
        return replace_first(pattern, text, replacement)
    except ReplacementError:
        return None


def differences(case: Mapping[str, Any], here: Mapping[str, Any], java: Mapping[str, Any]) -> list[str]:
    """What Penstock answers otherwise than Java."""
    if "refused" in here:
        return []
    if "refused" in java:
        return [f"Java refuses it: {java['refused'].splitlines()[0]}"]
    if here["groups"] != java["groups"]:
        return [f"{here['groups']} groups here, {java['groups']} in Java"]
    uncertain = here["uncertain"]
    found: list[str] = []
    for text, one, other in zip(case["texts"], here["texts"], java["texts"], strict=True):
        if _SLOW in (one, other) or _is_split(case["pattern"], text, other["found"]):
            continue
        for name in ("matches", "found_in", "found", "replaced"):
            mine: Any
            his: Any
            mine, his = one[name], other["found"] is not None if name == "found_in" else other[name]
            if name == "found" and mine and his:
                mine, his = (_without(groups, uncertain) for groups in (mine, his))
            if name == "replaced" and mine is None and uncertain:
                continue  # refused: it refers to one of these
            if mine != his:
                found.append(f"{name} for {text!r}: here {mine!r}, Java {his!r}")
    return found


def _is_split(pattern: str, text: str, found: Sequence[str] | None) -> bool:
    """Whether Java has found something, or looks behind, in the middle of a character that is two in its texts."""
    looks_behind = "(?<=" in pattern or "(?<!" in pattern
    split = found is not None and "\ud800" <= found[0][-1:] < "\udc00"
    return split or (looks_behind and any(char > "\uffff" for char in text))


def _without(groups: Sequence[str | None], uncertain: Sequence[int]) -> list[str | None]:
    return [None if place - 1 in uncertain else group for place, group in enumerate(groups)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. Returns its exit status: 1 where something differs."""
    parser = argparse.ArgumentParser(
        prog="python -m differential.patterns", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--seed", type=int, default=0, help="equal seeds make equal cases (%(default)s)")
    parser.add_argument("--count", type=int, default=2_000, help="how many patterns (%(default)s)")
    parser.add_argument("--record", type=Path, help="where to keep the cases with Java's answers")
    parser.add_argument("--refused", action="store_true", help="print what is refused here and taken by Java")
    options = parser.parse_args(arguments)
    cases = PatternCases(options.seed)
    made = [cases.case() for _ in range(options.count)]
    try:
        with tempfile.TemporaryDirectory() as directory:
            answers = java_answers(made, Path(directory), _PROGRAM)
    except NoCompilerError as error:
        print(error, file=sys.stderr)
        return 2
    counts: Counter[str] = Counter()
    for case, java in zip(made, answers, strict=True):
        here = answer_here(case)
        both = ("refused" in here, "refused" in java)
        counts["refused by both" if all(both) else "refused here alone" if both[0] else "taken"] += 1
        counts["texts"] += 0 if "refused" in here else len(here["texts"])
        counts["texts slow here"] += 0 if "refused" in here else here["texts"].count(_SLOW)
        if options.refused and both == (True, False):
            print(f"{case['pattern']!r}: {here['refused'].splitlines()[0]}")
        for told in differences(case, here, java):
            counts["differ"] += 1
            print(f"{case['pattern']!r} replaced by {case['replacement']!r}: {told}", flush=True)
    if options.record:
        lines = (json.dumps({"case": case, "java": java}) for case, java in zip(made, answers, strict=True))
        options.record.write_text("\n".join(lines) + "\n", "ascii")
    told = ", ".join(f"{number} {what}" for what, number in sorted(counts.items()) if what != "differ")
    print(f"seed {options.seed}: {len(made)} patterns, {told}; {counts['differ']} differ")
    return 1 if counts["differ"] else 0


if __name__ == "__main__":
    sys.exit(main())
