"""Growth by code: as a table, folded, for speedscope; from a watch over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from memwatch.core.examination import AllocationProfile, StackFrame, StackGrowth
from memwatch.outputs.status_json import snapshot_to_dict
from memwatch.outputs.text import diagnosis_text
from memwatch.outputs.text.profile_formats import folded, render_profile, speedscope
from support.processes import running
from support.snapshots import make_diagnosis, make_snapshot

MAIN, STEP = StackFrame("main", "/app/main.py", 80), StackFrame("Trainer.step;x", "/app/main.py", 20)
NUMPY = StackFrame("stack", "/lib/python3/dist-packages/numpy/shapes.py", 400, installed=True)
CREDITS = (StackGrowth((NUMPY, STEP, MAIN), 30_000_000), StackGrowth((MAIN,), 10_000_000), StackGrowth((), 10_000_000))


def test_the_table_has_lines_of_the_program() -> None:
    assert render_profile(AllocationProfile(30.0, 3.0, 50_000_000, CREDITS)).splitlines() == [
        "+50.0 MB in 30 s; 80% of it attributed to lines of code",
        "",
        "    +30.0 MB   75%  Trainer.step;x (main.py:20)",
        "    +10.0 MB   25%  main (main.py:80)",
    ]
    assert "did not grow" in render_profile(AllocationProfile(30.0, 3.0, 0, ()))
    assert "--seconds" in render_profile(AllocationProfile(30.0, 3.0, 7, (StackGrowth((), 7),)))


def test_stacks_are_folded_from_the_outermost_in() -> None:
    assert folded(CREDITS).splitlines() == [
        "main (main.py:80);Trainer.step,x (main.py:20);stack (shapes.py:400) 30000000",
        "main (main.py:80) 10000000",
        "(not seen) 10000000",
    ]


def test_speedscope_reads_them() -> None:
    shown = json.loads(speedscope(CREDITS, "python main.py"))
    (profile,) = shown["profiles"]
    frames = shown["shared"]["frames"]
    assert [[frames[i]["name"] for i in sample] for sample in profile["samples"]] == [
        ["main", "Trainer.step;x", "stack"],
        ["main"],
        ["(not seen)"],
    ]
    assert (profile["unit"], profile["weights"], profile["endValue"]) == (
        "bytes",
        [30_000_000, 10_000_000, 10_000_000],
        5e7,
    )
    assert frames[0] == {"name": "main", "file": "/app/main.py", "line": 80}


def test_a_watch_tells_the_lines_beside_the_findings() -> None:
    known = make_diagnosis()
    assert list(diagnosis_text.headlines(known))[-1] == (
        "  recently memory rose most in ReplayBuffer.add (buffer.py:41): 100% of the growth that was observed"
    )
    assert "   +150.0 GB  100%  ReplayBuffer.add (buffer.py:41)" in list(diagnosis_text.diagnosis_tables(known))
    shown = snapshot_to_dict(make_snapshot(13, diagnosis=known))["diagnosis"]
    assert shown["lines"][0]["frame"]["line"] == 41 and "credits" not in shown


GROWS = """
import time
print("ready", flush=True)
kept = []
while True:
    kept.append(bytearray(8 << 20))
    time.sleep(0.1)
"""


def test_the_command_keeps_stacks_in_a_new_file(tmp_path: Path) -> None:
    with running([sys.executable, "-c", GROWS]) as process:

        def profile(*options: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "memwatch", "profile", "--pid", str(process.pid), *options]
            return subprocess.run(command, capture_output=True, check=False, text=True, cwd=tmp_path, timeout=60)

        shown = profile("--seconds", "2", "-o", "growth.json")
        assert shown.returncode == 0 and " MB in 2 s" in shown.stdout and "stacks: growth.json" in shown.stdout
        assert json.loads((tmp_path / "growth.json").read_text())["exporter"] == "memwatch"
        assert profile("--seconds", "3", "-o", "growth.folded").returncode == 0
        stacks = [line.rpartition(" ") for line in (tmp_path / "growth.folded").read_text().splitlines()]
        assert {stack for stack, _, _ in stacks} <= {"(not seen)", "<module> (<string>:6)", "<module> (<string>:7)"}
        assert sum(int(size) for _, _, size in stacks) > 8 << 20
        again = profile("--seconds", "1", "-o", "growth.json")
        assert (again.returncode, again.stdout) == (2, "") and "exists already" in again.stderr
        for wrong in ("0", "-3", "nan", "soon", "1e9"):
            refused = profile("--seconds", wrong)
            assert refused.returncode == 2 and "not a length of time" in refused.stderr
