from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.history.run_identity import program, run_key, start_ticks


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("python train.py", "/w/train.py"),
        ("/usr/bin/python3.11 -u -X dev ./train.py --resume c.pt", "/w/train.py"),
        ("python /w/../w/train.py", "/w/train.py"),
        ("python -W ignore -m pkg.train --config conf.py", "-m pkg.train"),
        ("python -m torch.distributed.run --nproc-per-node 2 train.py", "/w/train.py"),
        ("/v/bin/python /v/bin/torchrun --nproc-per-node=2 train.py", "/w/train.py"),
        ("/v/bin/python /v/bin/train --epochs 3", "/v/bin/train"),
        ("python -c pass", "-c pass"),
        ("./trainer --epochs 3", "/w/trainer"),
        ("trainer --epochs 3", "trainer"),
        ("python", "python"),
        ("", ""),
    ],
)
def test_program(command: str, found: str) -> None:
    assert program(command.split(), "/w") == found


def test_options_and_interpreter_do_not_change_the_run() -> None:
    key = run_key(["python", "train.py"], "/w", "/w/a.log", 0)
    assert run_key(["/usr/bin/python3", "-u", "train.py", "--resume", "c.pt"], "/w/", "/w/./a.log", 0) == key
    others = [
        run_key(["python", "other.py"], "/w", "/w/a.log", 0),
        run_key(["python", "train.py"], "/v", "/w/a.log", 0),
        run_key(["python", "train.py"], "/w", None, 0),
        run_key(["python", "train.py"], "/w", "/w/a.log", 1),
    ]
    assert len({key, *others}) == 5


@given(st.lists(st.text(st.characters())), st.text(st.characters(exclude_characters="\0")))
def test_any_command_line_has_a_key(argv: list[str], cwd: str) -> None:
    assert run_key(argv, cwd, None, 0).isprintable()


def test_start_ticks_of_the_living_the_dead_and_the_undead(tmp_path: Path) -> None:
    assert start_ticks(os.getpid())
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert start_ticks(child.pid) is None  # a zombie
    child.wait()
    assert start_ticks(child.pid) is None
    (tmp_path / "5").mkdir()
    (tmp_path / "5/stat").write_bytes(b"5 (foo) Z ) S " + b"0 " * 18 + b"777 0")
    assert start_ticks(5, tmp_path) == 777
