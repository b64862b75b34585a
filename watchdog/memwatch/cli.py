"""The command line: subcommands to app functions, the one `except`, exit codes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from memwatch import __version__
from memwatch.errors import ConfigError, ExitCode, MemwatchError

DESCRIPTION = "Watch a training run's memory from outside, say when it will run out, and interrupt it cleanly before."
EXIT_CODES = """\
exit codes:
  0   the trainer ended by itself       10  memwatch interrupted it and it saved
  1   a bug in memwatch                 11  memwatch interrupted it, and it was escalated or died without saving
  2   bad usage or configuration        12  the kernel's OOM killer killed it
  3   cannot attach                     13  it failed: error status, MemoryError, CUDA OOM, another signal
                                        14  memwatch was told to stop, the trainer runs on
`memwatch run` exits with the trainer's own status."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    try:
        own, trainer = _split(sys.argv[1:] if arguments is None else list(arguments))
        return int(_dispatch(vars(_parser().parse_args(own)), trainer))
    except MemwatchError as error:
        print(f"memwatch: {error}", file=sys.stderr)
        if error.hint:
            print(f"          {error.hint}", file=sys.stderr)
        return int(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output left: nothing to say to it, and nothing more at exit
        return int(ExitCode.ENDED)
    except KeyboardInterrupt:
        return int(ExitCode.STOPPED)


def _dispatch(flags: dict[str, object], trainer: list[str]) -> int:
    from memwatch import commands

    command = flags.pop("command", None)
    trace_or_log = Path(str(flags.pop("file", "")))
    if command == "markers":
        return commands.markers(trace_or_log, flags)
    if command == "replay":
        return commands.replay(trace_or_log, flags)
    if command == "demo":
        return commands.demo(flags)
    if command == "doctor":
        return commands.doctor(flags)
    if command == "run":
        if not trainer:
            raise ConfigError("run needs the trainer's command", "as in: memwatch run -- python main.py")
        return commands.run(trainer, flags)
    return commands.watch(flags)


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """memwatch's own words, and those behind `--`: the trainer's, whatever they look like."""
    if "--" not in arguments:
        return arguments, []
    cut = arguments.index("--")
    return arguments[:cut], arguments[cut + 1 :]


def _parser() -> argparse.ArgumentParser:
    target, common, replayed = _target_flags(), _common_flags(), _replay_flags()
    parser = argparse.ArgumentParser(
        prog="memwatch",
        description=DESCRIPTION,
        epilog=EXIT_CODES,
        parents=[target, common],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"memwatch {__version__}")
    commands = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND")

    def add(name: str, help: str, *parents: argparse.ArgumentParser) -> argparse.ArgumentParser:
        return commands.add_parser(
            name, help=help, parents=parents, argument_default=argparse.SUPPRESS, allow_abbrev=False
        )

    add("run", "start a trainer and watch it: memwatch run -- python main.py", common)
    add("demo", "watch a leaking example trainer under a real limit", common)
    add("doctor", "what will and will not work here, and why", target, common)
    add("markers", "which markers memwatch finds in a log", replayed).add_argument("file", metavar="LOG")
    trace = add("replay", "the same engine over a recorded trace", replayed)
    trace.add_argument("file", metavar="TRACE.csv")
    trace.add_argument("--checkpoint-time", type=float, metavar="SECONDS", help="what a checkpoint takes")
    return parser


def _flags(title: str) -> tuple[argparse.ArgumentParser, argparse._ArgumentGroup]:
    parser = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    return parser, parser.add_argument_group(title)


def _target_flags() -> argparse.ArgumentParser:
    parser, group = _flags("the trainer")
    group.add_argument("--pid", type=int, help="its process")
    group.add_argument("--pidfile", metavar="FILE", help="a file with its PID")
    group.add_argument("--match", metavar="REGEX", help="its command line; exactly one process may match")
    group.add_argument("--log", metavar="FILE", help="its log; default: its stdout, when that is a file")
    return parser


def _common_flags() -> argparse.ArgumentParser:
    parser, group = _flags("options")
    group.add_argument("--config", metavar="FILE", help="settings in YAML; flags override them")
    group.add_argument("--listen", metavar="ADDR:PORT", help="metrics and status; default 127.0.0.1:9877, or none")
    group.add_argument("--history", metavar="FILE", help="what outlives memwatch; default in the state folder, or none")
    group.add_argument("--limit", metavar="SIZE", help="a limit of your own, as 175GB or 163GiB")
    group.add_argument("--interval", type=float, metavar="SECONDS", help="between samples; default 1")
    group.add_argument("--checkpoint-time", type=float, metavar="SECONDS", help="what a checkpoint takes; else learned")
    group.add_argument("--dry-run", action="store_true", help="everything but the signal")
    group.add_argument("--json", action="store_true", help="events as JSON lines on stdout")
    group.add_argument("-v", "--verbose", action="store_true", help="tell every marker and generation")
    return parser


def _replay_flags() -> argparse.ArgumentParser:
    parser, group = _flags("options")
    group.add_argument("--config", metavar="FILE", help="settings in YAML")
    group.add_argument("--json", action="store_true", help="JSON")
    return parser
