"""A regular expression of the user's own cannot hang the loop: it is ended, named once, and the others go on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from memwatch.core.events import Event, GaugeSeen, GenerationSeen, SourceChanged
from memwatch.errors import AttachError
from memwatch.sources.log.log_source import LogSource
from memwatch.sources.log.marker_presets import Preset, load_presets
from memwatch.sources.log.whole_log_scan import format_scan, scan_json, scan_log
from memwatch.sources.target.find_process import find_trainer_pid
from memwatch.system.clock import CpuTimeExceededError, run_with_cpu_limit
from support.presets import packaged_presets
from support.processes import WAIT, python, running

# Each with a line on which it takes years, or minutes.
HANGING = [
    (r"^(?:a+)+$", "a" * 60 + "!"),
    (r"^(?:\w+\s?)*:$", "word " * 40 + "!"),
    (r"(?:x+x+)+y", "x" * 4000),
    (r".*.*.*.*=.*;", "=" * 4096),
    (r"(?=(?:a|aa)+$)b", "a" * 80 + "c"),
    (r"(?i)^(?:(?:a|A|b)*)*?c", "aB" * 2000),
]
BOUND_SECONDS = 3.0  # of CPU, for what may take 0.1: other work on the machine does not count


def rules(*own: dict[str, object]) -> tuple[Preset, ...]:
    return load_presets([("ours.yaml", {"name": "ours", "rules": list(own)})], user=True)


def polled(path: Path, *presets: Preset, catch_up: bool = False) -> list[Event]:
    source = LogSource(path, presets, catch_up=catch_up)
    events: list[Event] = []
    more: list[Event] | None = None
    while more is None or more or source.catching_up:
        more = source.poll(1.0)
        events += more
    source.close()
    return events


@pytest.mark.parametrize(("pattern", "line"), HANGING)
def test_a_search_is_ended_in_time(pattern: str, line: str) -> None:
    compiled, begun = re.compile(pattern), time.thread_time()
    with pytest.raises(CpuTimeExceededError):
        run_with_cpu_limit(0.1, lambda: compiled.search(line))
    assert time.thread_time() - begun < BOUND_SECONDS


def test_what_is_done_in_time_leaves_nothing_behind() -> None:
    before = signal.getsignal(signal.SIGVTALRM)
    assert run_with_cpu_limit(0.1, lambda: 5) == 5
    with pytest.raises(KeyError):
        run_with_cpu_limit(0.1, lambda: {}[1])
    assert signal.getsignal(signal.SIGVTALRM) is before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


@pytest.mark.parametrize(("pattern", "line"), HANGING)
def test_a_rule_that_hangs_is_named_once_and_the_others_go_on(tmp_path: Path, pattern: str, line: str) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(f"Zyklus {i}\n{line}\nlevel {i}\n" for i in range(1, 6)))
    presets = rules(
        {"kind": "oom", "pattern": pattern},
        {"kind": "generation", "pattern": r"^Zyklus (?P<index>\d+)"},
        {"kind": "gauge", "name": "level", "pattern": r"^level (?P<value>\d+)"},
    )
    begun = time.thread_time()
    events = polled(log, *presets)
    assert time.thread_time() - begun < BOUND_SECONDS
    assert [event.index for event in events if isinstance(event, GenerationSeen)] == [1, 2, 3, 4, 5]
    assert [event.value for event in events if isinstance(event, GaugeSeen)][-1] == 5
    (told,) = [event for event in events if isinstance(event, SourceChanged)]
    assert (told.source, told.ok) == ("rule ours.yaml: rules[0]", False)
    assert told.reason == "it takes more than 0.1 s for one line, and is set aside"


def test_a_pattern_that_only_excludes_may_hang_as_well(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("a" * 60 + "!\n")
    (told,) = polled(log, *rules({"kind": "oom", "pattern": "!", "unless": "^(a+)+$"}))
    assert isinstance(told, SourceChanged)


def test_a_rule_that_is_slow_for_every_line_is_set_aside_too(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(f"{uuid.uuid4()} {'=' * 260}\n" for _ in range(400)))  # 5 to 20 ms each
    begun = time.thread_time()
    (told,) = polled(log, *rules({"kind": "oom", "pattern": ".*.*.*=;"}))
    assert time.thread_time() - begun < BOUND_SECONDS
    assert isinstance(told, SourceChanged) and told.reason.startswith("it takes more than ")


def test_a_plain_rule_is_never_set_aside(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(f"{uuid.uuid4()} {'word ' * 100}level {i}\n" for i in range(3000)))
    events = polled(log, *rules({"kind": "gauge", "name": "level", "pattern": r"level (?P<value>\d+)$"}))
    assert not [event for event in events if isinstance(event, SourceChanged)]
    assert any(isinstance(event, GaugeSeen) and event.value == 2999 for event in events)


def test_where_the_clocks_own_rule_hangs_another_clock_is_found(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("Generation 1 / 9\nZyklus 1\n" + "a" * 60 + "!\n" + "".join(f"Generation {i} / 9\n" for i in (2, 3)))
    own = rules({"kind": "generation", "pattern": r"^(?:Zyklus (?P<index>\d+)|(?:a+)+)$"})
    events = polled(log, *own, *packaged_presets())
    assert [event.index for event in events if isinstance(event, GenerationSeen)][-1] == 3


def test_old_lines_tell_it_once_too(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(
        "".join(f"{uuid.uuid4()}\n" for _ in range(20_000)) + "a" * 60 + "!\n"
    )  # longer than what is read first
    told = polled(log, *rules({"kind": "oom", "pattern": "^(?:a+)+$"}), catch_up=True)
    assert [event.source for event in told if isinstance(event, SourceChanged)] == ["rule ours.yaml: rules[0]"]


def test_markers_says_what_it_set_aside(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("a" * 60 + "!\n")
    found = scan_log(log, rules({"kind": "oom", "pattern": "^(?:a+)+$"}))
    assert "rule ours.yaml: rules[0] was set aside: it takes more than 0.1 s for one line" in format_scan(found)
    assert scan_json(found)["set_aside"] == [
        {"rule": "ours.yaml: rules[0]", "reason": "it takes more than 0.1 s for one line"}
    ]


def test_a_match_that_takes_too_long_is_refused_with_the_fix() -> None:
    words = "a" * 60 + f"{uuid.uuid4()}!"
    begun = time.thread_time()
    with running(python(WAIT, words)), pytest.raises(AttachError, match=r"takes more than 1 s") as refused:
        find_trainer_pid(match="(a+)+$")
    assert time.thread_time() - begun < BOUND_SECONDS
    assert "repetitions" in refused.value.hint


@pytest.mark.integration
def test_a_watch_goes_on_beside_a_rule_that_hangs(tmp_path: Path) -> None:
    config = tmp_path / "memwatch.yaml"
    config.write_text("log: {presets: [{name: ours, rules: [{kind: oom, pattern: '^(?:a+)+$'}]}]}\nhistory: none\n")
    trainer = (
        "import time\nfor i in range(1, 5): print(f'Generation {i} / 4'); print('a' * 60 + '!'); time.sleep(0.7)\n"
    )
    command = [sys.executable, "-m", "memwatch", "run", "--config", str(config), "--json", "--", *python(trainer)]
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ, check=False)
    assert ran.returncode == 0, ran.stderr
    told = [json.loads(line) for line in ran.stdout.splitlines()]
    failed = [notice for notice in told if notice["event"] == "source_failed" and "rule" in notice["source"]]
    assert [notice["source"] for notice in failed] == ["rule log.presets[0]: rules[0]"]
    assert told[-1]["event"] == "exited" and "4 of 4" in ran.stdout
