"""The command line: subcommands to functions, the one `except`, exit codes."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from memwatch.errors import ConfigError, ExitCode, MemwatchError

DESCRIPTION = "Watch a training run's memory from outside, say when it will run out, and interrupt it cleanly before."
EXIT_CODES_HELP = """\
exit codes:
  0   the trainer ended by itself       10  memwatch interrupted it and it saved
  1   a bug in memwatch                 11  memwatch interrupted it, and it was escalated or died without saving
  2   bad usage or configuration        12  the kernel's OOM killer killed it
  3   cannot attach                     13  it failed: error status, MemoryError, CUDA OOM, another signal
                                        14  memwatch was stopped, the trainer goes on
`memwatch run` exits with the trainer's own status, 128 + N when signal N ended it,
and `memwatch serve`, when stopped, with 0."""
TARGET = ("pid", "pidfile", "match", "unit", "cgroup", "log")
ALONE = ("--json", "--dry-run", "-v", "--verbose")  # options without a value


def main(arguments: Sequence[str] | None = None, announce: Callable[[int], None] = lambda _: None) -> int:
    """Run one command; the exit code. `announce` is told the PID of each trainer that is started."""
    _open_standard_streams()
    try:
        return _flushed(_dispatch(*_parse(sys.argv[1:] if arguments is None else arguments), announce))
    except MemwatchError as error:
        _complain(error)
        return _flushed(error.exit_code)
    except KeyboardInterrupt:
        return _flushed(ExitCode.STOPPED)
    except OSError as error:  # of stdout: every other one is mapped where it arises
        return _unwritten(error, ExitCode.ENDED)


def _replay(file: Path, flags: dict[str, object]) -> int:
    from memwatch.cli import commands as watch
    from memwatch.cli import history_commands

    if history_commands.is_history(file):
        return history_commands.replay_history(file, flags)
    if "run_id" in flags:
        raise ConfigError(f"{file}: no history, which --run names a run of", "leave --run out, or name a history")
    return watch.replay_trace(file, flags)


def _dispatch(flags: dict[str, object], trainer: list[str], announce: Callable[[int], None]) -> int:
    command = flags.pop("command", None)
    if command in ("completion", "man") or "version" in flags:
        return _about(command, flags)
    from memwatch.cli import commands as watch

    file = Path(str(flags.pop("file", "")))
    if command == "markers":
        return watch.markers(file, flags)
    if command == "replay":
        return _replay(file, flags)
    if command == "config":
        return _config(flags)
    if command in ("report", "compare", "export"):
        from memwatch.cli import history_commands as on_history

        return {"report": on_history.report, "compare": on_history.compare, "export": on_history.export}[command](flags)
    if command == "top":
        return watch.top(str(flags.pop("url", "")), bool(flags.pop("once", False)), flags)
    if command == "demo":
        return watch.demo(flags)
    if command == "doctor":
        return watch.doctor(flags)
    if command == "census":
        return watch.census(flags)
    if command == "profile":
        return watch.profile(flags)
    if command == "snapshot":
        return watch.snapshot(flags)
    if command == "diff":
        return watch.diff(flags)
    if command == "run":
        from memwatch.cli import run

        return run.run(trainer, flags, announce)
    if command == "serve":
        return watch.serve(flags)
    return watch.watch(flags, bool(flags.pop("once", False)))


def _about(command: object, flags: dict[str, object]) -> int:
    """What loads nothing else: a shell's start may ask for it."""
    from memwatch.cli import version_manual_completion

    if command == "completion":
        return version_manual_completion.completion(str(flags["shell"]))
    return version_manual_completion.manual() if command == "man" else version_manual_completion.version()


def _config(flags: dict[str, object]) -> int:
    from memwatch.cli import config_commands

    aspect, files = flags.pop("aspect"), flags.pop("files", [])
    if aspect == "schema":
        return config_commands.print_config_schema()
    if aspect == "show":
        return config_commands.show_config(flags)
    return config_commands.check_config(files if isinstance(files, list) else [], flags)


# --- words ----------------------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message, f"{self.prog} --help lists the options")


def _parse(arguments: Sequence[str]) -> tuple[dict[str, object], list[str]]:
    """memwatch's own flags, and the words behind `--`: the trainer's, whatever they look like."""
    words = list(arguments)
    cut = words.index("--") if "--" in words else len(words)
    namespace, unknown = _parser().parse_known_args(_spelled_out(words[:cut]))
    flags, trainer = vars(namespace), words[cut + 1 :]
    command = flags.get("command")
    if unknown:
        hint = "write -- before the trainer's command, as in: memwatch run -- python main.py"
        raise ConfigError(
            f"not understood: {' '.join(unknown)}",
            hint if command == "run" else f"memwatch {command or ''} --help lists the options".replace("  ", " "),
        )
    if command == "run" and not trainer:
        raise ConfigError("run needs the trainer's command", "as in: memwatch run -- python main.py")
    if command != "run" and trainer:
        raise ConfigError(f"not understood: {' '.join(trainer)}", "to start a trainer: memwatch run -- python main.py")
    named = [f"--{name}" for name in TARGET if name in flags]
    if named and command not in (None, "serve", "doctor", "census", "profile", "snapshot", "config"):
        raise ConfigError(f"{', '.join(named)} has no meaning for memwatch {command}", "leave it out")
    return flags, trainer


def _spelled_out(words: Sequence[str]) -> list[str]:
    """-1 as --once, where it is no option's value: argparse would take every negative number for an option."""
    before = ("", *words)
    return [
        "--once" if word == "-1" and (not before[i].startswith("-") or before[i] in ALONE) else word
        for i, word in enumerate(words)
    ]


def _parser() -> _Parser:
    process, common, wish = _process_flags(), _common_flags(), _census_flags()
    target = _target_flags(process)
    parser = _Parser(
        prog="memwatch",
        description=DESCRIPTION,
        epilog=EXIT_CODES_HELP,
        parents=[target, common],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version, the build and what it runs on")
    parser.add_argument(
        "--once", action="store_true", help="or -1: print one screen and exit; nothing is stored or sent"
    )
    watch = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND")

    add = _adder(watch)
    files = "It only reads a file: where nothing is watched, the options about the watch change nothing."
    add("run", "start a trainer and watch it: memwatch run [options] -- python main.py", common, _restart_flags())
    add("serve", "watch one trainer after another, as a service: memwatch serve --config FILE", target, common)
    add("demo", "watch a leaking example trainer under a real limit", common)
    doctor = add("doctor", "check what works on this machine and what does not, and why", target, common)
    doctor.add_argument("--test-notify", action="store_true", help="send a test message to the addresses of notify")
    top = add("top", "show the live view of a watch that runs elsewhere, from its endpoint", common)
    top.add_argument("url", metavar="URL", nargs="?", help="its endpoint; default http://127.0.0.1:9877")
    top.add_argument("--once", action="store_true", help="or -1: print one screen and exit")
    top.add_argument(
        "--ca-file", metavar="FILE", help="the CA of its certificate; default: those that this machine trusts"
    )
    top.add_argument("--cert", metavar="FILE", help="your certificate, if it requires one")
    top.add_argument("--key", metavar="FILE", help="the key of your certificate")
    top.add_argument("--password-file", metavar="FILE", help="for https://NAME@HOST:PORT; default: $MEMWATCH_PASSWORD")
    census = add("census", "count the objects of a running Python by type, from outside", process, wish)
    census.add_argument("--json", action="store_true", help="print all types as one JSON object")
    census.add_argument(
        "--bytes",
        action="store_true",
        help="print sizes, also of arrays and text; takes two to three times the CPU time",
    )
    profile = add("profile", "find the lines of code that raise the memory of a running Python, from outside", process)
    profile.add_argument("--seconds", metavar="SECONDS", help="how long to follow memory; default 30; Ctrl-C ends it")
    profile.add_argument(
        "-o", "--output", metavar="FILE", help="write the stacks: for speedscope (.json), or folded (any other name)"
    )
    profile.add_argument("--json", action="store_true", help="print all stacks as one JSON object")
    snapshot = add("snapshot", "store what a trainer holds now: memory, objects, stacks", process, wish)
    snapshot.add_argument("--label", help="the snapshot's name; default: the time")
    snapshot.add_argument("-o", "--output", metavar="FILE", help="the file to write; default: in the state folder")
    snapshot.add_argument("--json", action="store_true", help="print the snapshot as one JSON object")
    diff = add("diff", "show the differences between two snapshots")
    diff.add_argument(
        "snapshots", nargs=2, metavar="SNAPSHOT", help="a file, or the label of a snapshot (the latest with that label)"
    )
    diff.add_argument("--json", action="store_true", help="print the differences as one JSON object")
    _add_reports(add, common, files)
    _add_config(add, target, common)
    add("markers", "show the markers that memwatch finds in a log", common, epilog=files).add_argument(
        "file", metavar="LOG"
    )
    replay = add("replay", "run the engine over a recorded trace, or over a run of the history", common, epilog=files)
    replay.add_argument(
        "file", metavar="FILE", help="a trace (.csv), or a history: compares the replay with what was reported"
    )
    replay.add_argument("--run", dest="run_id", metavar="ID", help="a run of the history; default: the latest")
    replay.add_argument("--plot", metavar="FILE", help="draw the replay: a page (.html) or a picture (.svg)")
    add("man", "show the manual page")
    completion = add("completion", "print a script that completes memwatch's commands and options with Tab")
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))
    return parser


def _adder(commands: argparse._SubParsersAction[_Parser]) -> Callable[..., _Parser]:
    def add(name: str, help: str, *parents: _Parser, epilog: str = "") -> _Parser:
        return commands.add_parser(
            name,
            help=help,
            description=f"{help[0].upper()}{help[1:]}.",
            epilog=epilog,
            parents=parents,
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
        )

    return add


def _add_reports(add: Callable[..., _Parser], common: _Parser, files: str) -> None:
    """The commands that read the history."""
    one_run, group = _flags("the run")
    group.add_argument("runs", metavar="HISTORY", nargs="?", help="the history file; default: in the state folder")
    group.add_argument("--run", dest="run_id", metavar="ID", help="which run; default: the latest")
    text = "report on a run of the history: a summary, a page, a table"
    report = add("report", text, one_run, common, epilog=files)
    report.add_argument("--list", action="store_true", help="list the runs of the history")
    report.add_argument(
        "-o", "--output", metavar="FILE", help="write a page (.html), the summary (.txt), .json or .csv"
    )
    forms = report.add_mutually_exclusive_group()
    forms.add_argument("--text", action="store_true", help="print the summary as tables; the default")
    forms.add_argument("--csv", action="store_true", help="print the generations as CSV")
    compare = add("compare", "compare two runs, as before and after a fix", common, epilog=files)
    compare.add_argument(
        "pair", metavar="RUN", nargs=2, help="a history file (its latest run), or a run's ID; ID@2: its second process"
    )
    compare.add_argument(
        "-o", "--output", metavar="FILE.html", help="write a page, with the memory of both in one chart"
    )
    export = add("export", "export a run of the history as a trace, for memwatch replay", one_run, common, epilog=files)
    export.add_argument("-o", "--output", metavar="FILE.csv", help="default: stdout")


def _add_config(add: Callable[..., _Parser], target: _Parser, common: _Parser) -> None:
    """The commands about the configuration itself."""
    config = add("config", "check the configuration, show its values, print its schema")
    aspects = config.add_subparsers(dest="aspect", title="commands", metavar="COMMAND", required=True)

    aspect = _adder(aspects)
    check = aspect("check", "check configuration files, and list all errors in them", _config_flags())
    check.add_argument("files", metavar="FILE", nargs="*", help="default: the file of --config")
    aspect("show", "show all values that a watch here would use, and where each comes from", target, common)
    aspect("schema", "print the JSON Schema of a configuration file, for editors")


def _flags(title: str) -> tuple[_Parser, argparse._ArgumentGroup]:
    parser = _Parser(add_help=False, argument_default=argparse.SUPPRESS)
    return parser, parser.add_argument_group(title)


def _process_flags() -> _Parser:
    parser, group = _flags("the trainer")
    group.add_argument("--pid", help="its process ID")
    group.add_argument("--pidfile", metavar="FILE", help="a file that contains its PID")
    group.add_argument("--match", metavar="REGEX", help="a pattern of its command line; exactly one process must match")
    group.add_argument("--unit", metavar="NAME", help="its systemd unit")
    group.add_argument(
        "--cgroup", metavar="PATH", help="its cgroup, as in /proc/PID/cgroup; * and ? stand for anything"
    )
    return parser


def _census_flags() -> _Parser:
    parser, group = _flags("more details")
    group.add_argument("--holders", metavar="TYPE", action="append", help="show what holds the objects of this type")
    group.add_argument("--track", metavar="PATH", action="append", help="show the size of an attribute: Trainer.buffer")
    return parser


def _target_flags(process: _Parser) -> _Parser:
    parser = _Parser(add_help=False, argument_default=argparse.SUPPRESS, parents=[process])
    group = parser.add_argument_group("its output")
    group.add_argument("--log", metavar="FILE", help="its log; default: its stdout, if that is a file")
    return parser


def _restart_flags() -> _Parser:
    parser, group = _flags("after an interrupt that saved")
    group.add_argument(
        "--max-restarts", metavar="N", help="restart it at most N times, while each restart makes progress"
    )
    text = "start it again with this command: one argument, split into words as a shell does; no shell runs it"
    group.add_argument("--resume-with", metavar="CMD", help=text)
    return parser


def _config_flags() -> _Parser:
    parser, group = _flags("configuration")
    group.add_argument("--config", metavar="FILE", help="settings in YAML; default: $MEMWATCH_CONFIG")
    group.add_argument("--profile", metavar="NAME", help="a set of settings: observe, default, aggressive")
    return parser


def _common_flags() -> _Parser:
    parser = _Parser(add_help=False, argument_default=argparse.SUPPRESS, parents=[_config_flags()])
    group = parser.add_argument_group("options")
    group.add_argument(
        "--listen", metavar="ADDR:PORT", help="serve metrics and status here; default 127.0.0.1:9877, or none"
    )
    group.add_argument(
        "--web-config", metavar="FILE", help="TLS and passwords for --listen, in the format of Prometheus's exporters"
    )
    group.add_argument(
        "--history", metavar="FILE", help="where to store the history; default: in the state folder, or none"
    )
    group.add_argument("--limit", metavar="SIZE", help="an additional limit, as 175GB or 163GiB")
    group.add_argument("--interval", metavar="SECONDS", help="time between samples; default 1")
    group.add_argument("--checkpoint-time", metavar="SECONDS", help="how long a checkpoint takes; default: measured")
    group.add_argument("--dry-run", action="store_true", help="send no signal, do everything else")
    group.add_argument("--json", action="store_true", help="print events as JSON lines on stdout")
    group.add_argument("-v", "--verbose", action="store_true", help="print every marker and generation")
    return parser


# --- standard streams -----------------------------------------------------------------------------------------------


def _open_standard_streams() -> None:
    """Where one is closed (`>&-`), the next file that is opened would get its number, and all that is printed."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _complain(error: MemwatchError) -> None:
    lines = []
    for one in (error, *(error.others if isinstance(error, ConfigError) else ())):
        lines += [f"memwatch: {one}", *(f"          {line}" for line in one.hint.splitlines())]
    try:
        print("\n".join(lines), file=sys.stderr)
    except OSError:  # nobody listens
        pass


def _flushed(code: int) -> int:
    """The exit code, after the last words are out."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return _unwritten(error, code)
    return int(code)


def _unwritten(error: OSError, code: int) -> int:
    """The exit code when stdout takes no more. A reader or terminal that left is normal; a full disk is told."""
    if error.errno not in (errno.EPIPE, errno.EIO, errno.ENOSPC):
        raise error
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left goes nowhere, and nothing fails at exit
    if error.errno != errno.ENOSPC:
        return int(code)
    _complain(MemwatchError("the output cannot be written: no space left"))
    return int(code or ExitCode.INTERNAL)
