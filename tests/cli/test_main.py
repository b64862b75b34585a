"""The command line as its users meet it: words, exit codes, errors that say what to do, and streams that close."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import memwatch
from memwatch import __version__
from memwatch.cli.main import _parse, _parser, main
from memwatch.errors import ExitCode
from support.processes import WAIT, python, running

TRACE = "t,rss,limit,gen,phase,total_gens\n" + "".join(
    f"{t},{10**9 + t * 10**7},{4 * 10**9},{t // 10},work,40\n" for t in range(300)
)
LOG = "".join(f"Epoch {epoch}/5\nloss: 0.{9 - epoch}\n" for epoch in range(1, 6))


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, list[str]]:
    """Exit code, stdout, and the lines of stderr."""
    code = main(arguments)
    output = capsys.readouterr()
    return code, output.out, output.err.splitlines()


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "main.log"
    path.write_text(LOG)
    return path


# --- usage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        ([], "no trainer is named", "--pid PID, --pidfile FILE, --match REGEX, --unit NAME and --cgroup PATH"),
        (["--bogus"], "not understood: --bogus", "did you mean --log?"),
        (["--js"], "not understood: --js", "did you mean --json?"),
        (["frobnicate"], "not understood: frobnicate", "memwatch --help"),
        (["reprot"], "not understood: reprot", "did you mean report?"),
        (["--pdi", "3"], "not understood: --pdi", "did you mean --pid?"),
        (["doctor", "extra"], "not understood: extra", "memwatch doctor --help"),
        (["run", "python", "main.py"], "not understood: python main.py", "memwatch run -- python main.py"),
        (["run"], "run needs the trainer's command", "memwatch run -- python main.py"),
        (["run", "--"], "run needs the trainer's command", "memwatch run -- python main.py"),
        (["run", "--max-restarts", "0", "--", "true"], "--max-restarts 0: not a number of restarts", "1 to 1000000"),
        (["run", "--max-restarts", "-1", "--", "true"], "--max-restarts -1: not a number of restarts", "1 to 1000000"),
        (["run", "--max-restarts", "twice", "--", "true"], "--max-restarts twice: not a number", "1 to 1000000"),
        (
            ["run", "--resume-with", "./nowhere -x", "--", "true"],
            "--resume-with ./nowhere -x: no such",
            "--resume-with",
        ),
        (["run", "--resume-with", "", "--", "true"], "--resume-with : no such command", "--resume-with 'python"),
        (["run", "--resume-with", "python '", "--", "true"], "No closing quotation", "quote it as for a shell"),
        (["--pid", "7", "--max-restarts=2"], "--max-restarts is an option of memwatch run", "memwatch run --max"),
        (["--pid", "7", "--", "python"], "not understood: python", "memwatch run -- python main.py"),
        (["--pid", "7", "run", "--", "true"], "--pid has no meaning for memwatch run", "leave it out"),
        (["--log", "x", "demo"], "--log has no meaning for memwatch demo", "leave it out"),
        (["markers"], "required: LOG", "memwatch markers --help"),
        (["completion", "csh"], "invalid choice: 'csh'", "memwatch completion --help"),
        (["--pid"], "argument --pid: expected one argument", "memwatch --help"),
        (["--pid", "abc"], "--pid abc", "whole number"),
        (["--pid", "0"], "--pid 0: out of range", "1 to 4194304"),
        (["--pid", "-5"], "--pid -5: out of range", "1 to 4194304"),
        (["--pid", "7", "--match", "x"], "--match x: target.pid names the trainer already", "keep one"),
        (["--match", "["], "--match [: not a regular expression", "unterminated"),
        (["--pid", "7", "--interval", "soon"], "--interval soon", "a number"),
        (["--pid", "7", "--interval", "nan"], "--interval nan", "0.05 to 3600"),
        (["--pid", "7", "--limit", "5 apples"], "--limit 5 apples: not a size", "175GB or 163GiB"),
        (["--pid", "7", "--listen", "9877"], "--listen 9877: not an address to listen on", "ADDRESS:PORT"),
        (["--pid", "7", "--checkpoint-time", "-1"], "--checkpoint-time -1", "0.1 to 86400"),
        (["--pid", "7", "--config", "/nowhere.yaml"], "/nowhere.yaml: No such file", "--config"),
        (["replay", "/nowhere.csv"], "/nowhere.csv: cannot be read: No such file", ".csv"),
        (["replay", "/"], "/: cannot be read: Is a directory", ".csv"),
        (["replay", "/etc/passwd"], "/etc/passwd:1: no column t, rss, limit", "t,rss,limit"),
        (["markers", "/nowhere.log"], "log /nowhere.log does not exist", "a log file that can be read"),
        (["markers", "/"], "log / is a folder", "name a file in it"),
    ],
)
def test_bad_usage_says_what_and_what_to_do(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str, hint: str
) -> None:
    code, out, err = said(capsys, *arguments)
    assert code == ExitCode.USAGE
    assert out == ""
    assert err[0].startswith("memwatch: ")
    assert message in err[0]
    assert hint in "\n".join(err[1:])
    assert all(line.startswith("          ") for line in err[1:])


def test_an_unknown_key_is_told_with_its_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "m.yaml"
    config.write_text("memory:\n  limit: 175GB\npolicy:\n  chekpoint_seconds: 4\n")
    code, _, err = said(capsys, "--config", str(config), "--pid", "7")
    assert code == ExitCode.USAGE
    assert err[0].endswith("m.yaml:4: policy.chekpoint_seconds: there is no such key")
    assert "checkpoint_seconds" in err[1]


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, part in ((("--help",), "exit codes"), (("run", "-h"), "--listen")):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 0
        assert part in capsys.readouterr().out


def test_the_version_is_a_line_for_programs_and_lines_for_a_report_of_a_bug(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, "--version")
    assert (code, err) == (ExitCode.ENDED, [])
    first, *facts = out.splitlines()
    assert first == f"memwatch {__version__}"
    told = {line.split()[0]: line.split(maxsplit=1)[1] for line in facts}
    assert list(told) == ["build", "python", "system", "packages", "extras", "files"]
    assert told["python"] == f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}"
    assert told["files"] == str(Path(memwatch.__file__).parent)


def test_each_command_has_a_function() -> None:
    def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
        yield parser
        for action in parser._actions:
            if action.dest in ("command", "aspect"):
                yield from (inner for child in action.choices.values() for inner in parsers(child))

    places = [parser.get_default("function").partition(".") for parser in parsers(_parser())]
    assert len(places) > 15
    for module, _, function in places:
        assert not module or callable(getattr(importlib.import_module(f"memwatch.cli.{module}"), function))


@pytest.mark.parametrize("words", [["--version"], ["completion", "bash"], ["man"]])
def test_what_memwatch_tells_of_itself_loads_nothing_of_a_watch(words: list[str]) -> None:
    loaded = f"import sys; from memwatch.cli.main import main; main({words}); sys.stderr.write(' '.join(sys.modules))"
    asked = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert asked.stdout
    assert not {"msgspec", "yaml", "rich", "memwatch.app.composition", "memwatch.config.settings"} & set(
        asked.stderr.split()
    )


@pytest.mark.parametrize("code", list(ExitCode))
def test_every_exit_code_is_in_the_help(capsys: pytest.CaptureFixture[str], code: ExitCode) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert f" {int(code)} " in capsys.readouterr().out


@pytest.mark.parametrize("command", ["run", "demo", "doctor", "serve"])
def test_the_options_of_a_watch_are_common(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    told = capsys.readouterr().out
    common = "--config --profile --listen --history --limit --interval --checkpoint-time --dry-run --json -v"
    assert all(option in told for option in common.split())


@pytest.mark.parametrize("command", ["last", "report", "plan", "compare", "export", "markers", "top", "mark"])
def test_what_reads_has_no_option_of_a_watch(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    told = capsys.readouterr().out
    assert not any(option in told for option in ["--listen", "--limit", "--interval", "--checkpoint-time", "--dry-run"])
    words = {"compare": ("a", "b"), "markers": ("a",), "mark": ("a=1",)}.get(command, ())
    assert main([command, *words, "--limit", "3GB"]) == ExitCode.USAGE
    assert f"--limit has no meaning for memwatch {command}" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "serve", "demo", "doctor", "census", "report", "plan", "replay", "markers"])
def test_each_help_has_an_example_that_is_understood(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    [example] = re.findall(r"example: memwatch (.*)", capsys.readouterr().out)
    assert _parse(shlex.split(example))[0]["command"] == command


# --- which trainer --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pid", "message"),
    [(1, "PID 1 is never watched"), (None, "is memwatch itself"), (4_194_304, "no process 4194304")],
)
def test_who_is_never_watched(capsys: pytest.CaptureFixture[str], pid: int | None, message: str) -> None:
    code, _, err = said(capsys, "--pid", str(pid or os.getpid()))
    assert code == ExitCode.CANNOT_ATTACH
    assert message in err[0]
    assert len(err) > 1


def test_a_kernel_thread_is_never_watched(capsys: pytest.CaptureFixture[str]) -> None:
    if "kthreadd" not in Path("/proc/2/stat").read_text() if Path("/proc/2/stat").exists() else True:
        pytest.skip("no kernel threads are to be seen here")
    code, _, err = said(capsys, "--pid", "2")
    assert (code, "is a kernel thread" in err[0]) == (ExitCode.CANNOT_ATTACH, True)


def test_a_zombie_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    code, _, err = said(capsys, "--pid", str(child.pid))
    child.wait()
    assert (code, "it is a zombie" in err[0]) == (ExitCode.CANNOT_ATTACH, True)


def test_two_matches_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    word = f"trainer-{os.getpid()}"
    with running(python(WAIT, word)) as one, running(python(WAIT, word)) as two:
        code, _, err = said(capsys, "--match", word)
    assert code == ExitCode.CANNOT_ATTACH
    assert "fits 2 processes" in err[0]
    assert all(any(f"pid {pid} " in line for line in err) for pid in (one.pid, two.pid))


@pytest.mark.parametrize(
    ("content", "message"), [("soon\n", "holds 'soon', no PID"), ("", "is empty"), (None, "No such")]
)
def test_a_pidfile_that_holds_none(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str | None, message: str
) -> None:
    path = tmp_path / "pid"
    if content is not None:
        path.write_text(content)
    code, _, err = said(capsys, "--pidfile", str(path))
    assert (code, message in err[0], len(err)) == (ExitCode.CANNOT_ATTACH, True, 2)


# --- markers and replay ---------------------------------------------------------------------------------------------


def test_markers(capsys: pytest.CaptureFixture[str], log: Path) -> None:
    code, out, _ = said(capsys, "markers", str(log))
    assert code == 0
    assert out.splitlines()[0] == f"{log}: epoch 5 of 5 (preset: keras)"
    code, out, _ = said(capsys, "markers", str(log), "--json")
    [line] = out.splitlines()
    found = json.loads(line)
    assert {"preset", "unit", "total", "markers", "phases", "gauges"} <= found.keys()
    assert {"index", "byte", "line", "total"} <= found["markers"][0].keys()


@pytest.mark.parametrize("content", [b"", bytes(range(256)) * 400])
def test_a_log_without_markers_is_no_error(capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "main.log"
    path.write_bytes(content)
    code, out, _ = said(capsys, "markers", str(path))
    assert (code, "no markers found" in out) == (0, True)


def test_replay_for_people_has_times_and_a_conclusion(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    code, out, _ = said(capsys, "replay", str(trace))
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("       0 s  attached ")
    [at] = [line.split("  interrupt")[0].strip() for line in lines if "  interrupt " in line]
    assert lines[-2].startswith("End after 4 m 59 s: ")
    assert lines[-1].startswith(f"memwatch would have interrupted it after {at}, in generation ")
    assert len(said(capsys, "replay", str(trace), "-v")[1].splitlines()) > len(lines) + 20, "-v tells each generation"


def test_replay_as_json(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    _, out, _ = said(capsys, "replay", str(trace), "--json")
    events = [json.loads(line) for line in out.splitlines()]
    names = "event t verdict growth_per_gen eta_s eta_lo_s eta_hi_s oom_gen limit limit_origin"
    assert all(set(names.split()) <= event.keys() for event in events)
    assert [event["action"] for event in events].count("interrupt") == 1


def test_replay_under_a_limit_of_ones_own(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    def interrupted(*options: str) -> tuple[float, str]:
        events = [json.loads(line) for line in said(capsys, "replay", str(trace), "--json", *options)[1].splitlines()]
        [first] = [event for event in events if event["event"] == "interrupt"]
        return first["t"], first["limit_origin"]

    loose, tight = interrupted("--limit", "5GB"), interrupted("--limit", "2.5GB")
    assert loose == interrupted()
    assert tight[0] < loose[0]
    assert (loose[1], tight[1]) == ("trace", "--limit")


def test_replay_tells_why_it_interrupts_or_not(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    events = [json.loads(line) for line in said(capsys, "replay", str(trace), "--json")[1].splitlines()]
    [interrupt] = [event for event in events if event["event"] == "interrupt"]

    def why(t: float) -> dict[str, Any]:
        return json.loads(said(capsys, "replay", str(trace), "--json", "--why", str(t))[1])

    then, before = why(interrupt["t"]), why(0.8 * interrupt["t"])
    assert (then["event"], then["t"], then["resource"]) == ("why", interrupt["t"], "host")
    assert (then["reason"], before["reason"]) == (interrupt["kind"], None)
    assert then["p_within_lead"] == pytest.approx(interrupt["threshold"]["odds_within_lead"], abs=0.01)
    assert all(then[name] for name in ("is_growth", "is_believed")) and then["headroom"] == interrupt["headroom"]
    assert before["left_s"] == pytest.approx(then["left_s"] + 0.2 * interrupt["t"], rel=0.1)
    code, out, _ = said(capsys, "replay", str(trace), "--why", str(0.8 * interrupt["t"]))
    assert (code, "host: no interrupt\n" in out) == (0, True)
    assert out.count("? yes\n") >= 2 and out.count("? no\n") >= 1


@pytest.mark.parametrize("time", ["soon", "-1", "inf"])
def test_why_asks_for_a_time(capsys: pytest.CaptureFixture[str], trace: Path, time: str) -> None:
    code, _, error = said(capsys, "replay", str(trace), f"--why={time}")
    assert (code, "give seconds from the start" in error[1]) == (2, True)


def test_a_trace_may_have_checkpoints_shorter_than_the_interval_of_a_live_watch(
    capsys: pytest.CaptureFixture[str], trace: Path
) -> None:
    code, out, _ = said(capsys, "replay", str(trace), "--checkpoint-time", "0.6")
    assert code == 0 and "memwatch would have interrupted it" in out
    assert said(capsys, "--pid", "7", "--checkpoint-time", "0.6")[0] != 0


def test_an_empty_trace_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(TRACE.splitlines()[0])
    code, _, err = said(capsys, "replay", str(path))
    assert (code, "holds no samples" in err[0]) == (ExitCode.USAGE, True)


# --- streams --------------------------------------------------------------------------------------------------------


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """A line of bash with `$memwatch` in it; its status is that of the whole pipe's first command."""
    script = f'memwatch() {{ "{sys.executable}" -m memwatch "$@"; }}; {line}; exit ${{PIPESTATUS[0]}}'
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("options", ["", "-v", "--json"])
def test_a_reader_that_leaves_is_no_error(trace: Path, options: str) -> None:
    ended = shell(f"memwatch replay {trace} {options} | head -1")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(ended.stdout.splitlines()) == 1


def test_a_reader_that_is_not_there_is_no_error(log: Path) -> None:
    ended = shell(f"memwatch markers {log} | true")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_full_disk_is_told(trace: Path, log: Path) -> None:
    for command in (f"replay {trace} -v", f"markers {log}"):
        ended = shell(f"memwatch {command} > /dev/full")
        assert ended.returncode == ExitCode.INTERNAL
        assert ended.stderr == "memwatch: the output cannot be written: no space left\n"


def test_closed_streams_are_no_error_and_no_file_takes_their_place(log: Path, tmp_path: Path) -> None:
    assert shell(f"memwatch markers {log} <&- >&- 2>&-").returncode == 0
    state, code = tmp_path / "h.db", "print('x' * 50); import time; time.sleep(0.5)"
    ended = shell(f'memwatch run --listen none --history {state} -- {sys.executable} -c "{code}" >&-')
    assert ended.returncode == 0, ended.stderr
    assert state.read_bytes().startswith(b"SQLite format 3")
    assert b"x" * 50 not in state.read_bytes()[:4096]


# --- the port -------------------------------------------------------------------------------------------------------


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("way", ["flag", "config"])
def test_a_port_that_one_names_must_be_free(capsys: pytest.CaptureFixture[str], tmp_path: Path, way: str) -> None:
    with taken_port() as port, running(python(WAIT)) as trainer:
        config = tmp_path / "m.yaml"
        config.write_text(f"listen: 127.0.0.1:{port}\n")
        named = ["--listen", f"127.0.0.1:{port}"] if way == "flag" else ["--config", str(config)]
        code, _, err = said(capsys, "--pid", str(trainer.pid), "--history", "none", *named)
        assert code == ExitCode.USAGE
        assert f"cannot listen on 127.0.0.1:{port}" in err[0]
        assert "--listen" in err[1]
        touched = tmp_path / "touched"
        assert said(capsys, "run", *named, "--", "touch", str(touched))[0] == ExitCode.USAGE
        assert not touched.exists(), "no trainer is started for nothing"
