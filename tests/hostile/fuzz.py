"""Coverage-guided fuzzing of each parser in the table, as `make fuzz`; what is found is kept, with what repeats it."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stderr
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hostile.contract import Parser

ROOT = Path(__file__).parents[2]
WORK = ROOT / "build" / "fuzz"  # what was found, and inputs that reached something new: the next time begins with them
LOGS = ROOT.parent / "shared" / "logs"  # of real trainers, where they are
LONGEST, INPUT_SECONDS, MOST_MIB = 4096, 10, 1500  # of an input; RSS of all, of which Python and its counters are most
ANY_MIB = 400  # that an input may ask for at once
_DONE = re.compile(r"^#(\d+)\s+DONE.*?cov: (\d+) ft: (\d+)", re.MULTILINE)
_INITED = re.compile(r"^#\d+\s+INITED.*?cov: (\d+)", re.MULTILINE)
_PEAK = re.compile(r"stat::peak_rss_mb:\s+(\d+)")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one parser."""

    name: str
    executions: int
    seconds: float
    coverage_of_seeds: int  # edges of bytecode
    coverage: int
    rss_mib: int
    found: str  # the command that repeats it; empty: nothing was found


def main(words: Sequence[str]) -> int:
    """Fuzz them all, or those that are named; 1 when anything was found."""
    options = argparse.ArgumentParser(prog="python -m hostile.fuzz", description=__doc__)
    options.add_argument("names", nargs="*", help="parsers of the table; none: all of them")
    options.add_argument("--seconds", type=int, default=10, help="for each parser")
    options.add_argument("--runs", type=int, help="of each parser, however long they take")
    options.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="parsers at a time")
    options.add_argument(
        "--seed", type=int, default=0, help="the same inputs each time, as far as time goes; 0: others"
    )
    options.add_argument("--json", type=Path, help="a file for the figures")
    options.add_argument("--again", type=Path, help="repeat this input of the one parser that is named")
    given = options.parse_args(words)
    if given.again is not None:
        from hostile.contract import hold
        from hostile.parsers import PARSERS

        hold(PARSERS[given.names[0]], given.again.read_bytes())
        return 0
    until = f"-max_total_time={given.seconds}" if given.runs is None else f"-runs={given.runs}"
    outcomes = fuzz(given.names, until, given.jobs, given.seed)
    if given.json is not None:
        command = f"make fuzz FUZZ={given.seconds}" + (f' ONLY="{" ".join(given.names)}"' if given.names else "")
        rows = {"command": command, "python": sys.version.split()[0], "parsers": [asdict(one) for one in outcomes]}
        given.json.write_text(json.dumps(rows, indent=1) + "\n")
    for one in outcomes:
        print(f"{one.name}: {one.found}" if one.found else "", end="\n" if one.found else "")
    bad = sum(bool(one.found) for one in outcomes)
    print(f"{len(outcomes) - bad} passed, {bad} failed")
    return 1 if bad else 0


def fuzz(names: Iterable[str], until: str, jobs: int, seed: int = 0) -> list[Outcome]:
    """Each in a process of its own, a fork of this one: what is instrumented once serves all.

    `until`: when to end, as libFuzzer's option.
    """
    import atheris

    with redirect_stderr(io.StringIO()), atheris.instrument_imports(include=["memwatch"]):
        from hostile.parsers import PARSERS
    running: dict[int, tuple[str, float]] = {}
    outcomes: list[Outcome] = []
    for name in names or PARSERS:
        if len(running) >= jobs:
            outcomes.append(_ended(running))
        pid = os.fork()
        if pid == 0:
            try:
                _go(name, PARSERS[name], until, seed)
            finally:
                os._exit(70)  # whatever went wrong, this is not the process that goes on
        running[pid] = name, time.monotonic()
    while running:
        outcomes.append(_ended(running))
    return outcomes


def _ended(running: dict[int, tuple[str, float]]) -> Outcome:
    """The next that does."""
    pid, status = os.wait()
    name, begun = running.pop(pid)
    said = (WORK / name / "log").read_text(errors="replace")
    done, inited, peak = _DONE.findall(said), _INITED.findall(said), _PEAK.findall(said)
    executions, coverage, _ = map(int, done[-1]) if done else (0, 0, 0)
    found = ""
    if status:
        inputs = sorted((WORK / name).glob("*-*"), key=lambda path: path.stat().st_mtime)
        again = f"--again {inputs[-1].relative_to(ROOT)}" if inputs else f": see {WORK / name / 'log'}"
        found = f"PYTHONPATH=watchdog:tests python -m hostile.fuzz {name} {again}"
    outcome = Outcome(
        name,
        executions,
        round(time.monotonic() - begun, 1),
        int(inited[-1]) if inited else 0,
        coverage,
        int(peak[-1]) if peak else 0,
        found,
    )
    print(f"{name}: {executions} executions, {outcome.coverage_of_seeds} -> {coverage} edges", flush=True)
    return outcome


def _go(name: str, parser: Parser, until: str, seed: int) -> None:
    """In the fork; it does not return."""
    import atheris

    from hostile.contract import PIECES, hold, warped

    folder = WORK / name
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for i, known in enumerate((*parser.seeds, *parser.found, *(_logs() if name == "markers" else ()))):
        (corpus / f"seed-{i}").write_bytes(known[:LONGEST] if name == "markers" else known)
    words = folder / "words"
    words.write_text("".join(map(_word, PIECES)))
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)

    def mutate(raw: bytes, most: int, number: int) -> bytes:
        chance = Random(number)
        if chance.random() < 0.5:
            raw = warped(raw, chance)[:most]
        return raw if chance.random() < 0.25 else bytes(atheris.Mutate(raw, most))

    longest = max(LONGEST, *map(len, parser.seeds))
    one: Callable[[bytes], None] = lambda raw: hold(parser, raw)  # noqa: E731
    bounds = f"-max_len={longest} -timeout={INPUT_SECONDS} -rss_limit_mb={MOST_MIB} -malloc_limit_mb={ANY_MIB}"
    ways = f"{until} -seed={seed} -print_final_stats=1 -dict={words} -artifact_prefix={folder}/"
    atheris.Setup(["fuzz", *bounds.split(), *ways.split(), str(corpus)], one, custom_mutator=mutate)
    atheris.Fuzz()


def _word(piece: bytes) -> str:
    """Of libFuzzer's dictionary."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in piece) + '"\n'


def _logs() -> Iterable[bytes]:
    return (path.read_bytes() for path in sorted(LOGS.glob("*.log")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
