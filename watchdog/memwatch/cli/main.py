"""The command line: the parser, the function of each command, error messages and exit codes."""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, NoReturn

from memwatch.errors import ConfigError, ExitCode, MemwatchError

DESCRIPTION = "Watch a training run's memory from outside, say when it will run out, and interrupt it cleanly before."
EXIT_CODES_HELP = """\
exit codes:
  0   the trainer ended with status 0   10  memwatch interrupted it and it saved
  1   a bug in memwatch                 11  memwatch interrupted it, and it died without saving
  2   bad usage or configuration        12  the kernel's OOM killer, or the scheduler at its limit, killed it
  3   cannot attach                     13  it failed: error status, MemoryError, CUDA OOM, another signal
                                        14  memwatch was stopped, the trainer goes on
`memwatch run` exits with the trainer's own status, 128 + N when signal N ended it,
and `memwatch serve`, when stopped, with 0."""

TARGET_FLAGS = ("pid", "pidfile", "match", "unit", "cgroup", "log")
COMMANDS_WITH_TARGET = (None, "mark", "serve", "doctor", "census", "profile", "snapshot", "config")
OPTIONS_WITHOUT_VALUE = ("--json", "--dry-run", "-v", "--verbose")  # those of the command line without a command


def main(arguments: Sequence[str] | None = None, announce: Callable[[int], None] = lambda _: None) -> int:
    """Run one command and return its exit code. `announce` is called with the PID of each trainer that is started."""
    _open_standard_streams()
    try:
        return _flush(_run_command(*_parse(sys.argv[1:] if arguments is None else arguments), announce))
    except MemwatchError as error:
        _print_error(error)
        return _flush(error.exit_code)
    except KeyboardInterrupt:
        return _flush(ExitCode.STOPPED)
    except OSError as error:
        if error.filename is None:  # from stdout
            return _give_up_stdout(error, ExitCode.ENDED)
        hint = "let this user read it, or name another file or folder"
        _print_error(MemwatchError(f"{error.filename}: {error.strerror}", hint))
        return _flush(ExitCode.USAGE)


def _run_command(flags: dict[str, Any], trainer: Sequence[str], announce: Callable[[int], None]) -> int:
    command, place = flags.pop("command"), flags.pop("function")
    if "version" in flags:
        place = "version_manual_completion.version"
    elif command == "run":
        from memwatch.cli.run import run

        return run(trainer, flags, announce)
    # A module is imported only when its command is given: a shell may run `memwatch completion` each time it starts.
    module, _, function = place.partition(".")
    exit_code: int = getattr(importlib.import_module(f"memwatch.cli.{module}"), function)(flags)
    return exit_code


# --- the parser -----------------------------------------------------------------------------------------------------


USUAL_EXITS = "0; 2 when an option, a file or a run cannot be used; 3 when a process or a watch cannot"
RUN_EXITS = "the trainer's own, 128 + N when signal N ended it; 2 or 3 when it could not be started"


class _Parser(argparse.ArgumentParser):
    """Leaves an option that is not given out of the result, and raises a ConfigError where argparse would exit."""

    def __init__(self, **options: Any) -> None:
        formatter = options.pop("formatter_class", argparse.HelpFormatter)
        super().__init__(
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
            formatter_class=partial(formatter, width=_help_width()),
            **options,
        )

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message, f"{self.prog} --help lists the options")

    def own_options(self) -> set[str]:
        """The options of this parser, without those of its commands."""
        return {option for action in self._actions for option in action.option_strings}

    def commands(self) -> dict[str, _Parser]:
        """Its commands, by name."""
        found = (one.choices for one in self._actions if isinstance(one, argparse._SubParsersAction))
        return dict(next(found, {}))

    def words(self) -> Iterator[str]:
        """All options of this parser and of its commands, and the names of these."""
        yield from self.own_options()
        for name, parser in self.commands().items():
            yield name
            yield from parser.words()


@cache
def _help_width() -> int:
    """Return what argparse would find: it asks for each option, and imports shutil with three compressors for that."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns) - 2
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns - 2
    except (AttributeError, ValueError, OSError):  # closed, or no terminal
        return 78


def _parse(arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return memwatch's own flags, and the trainer's command: all that stands behind `--`."""
    words = list(arguments)
    end = words.index("--") if "--" in words else len(words)
    parser, own = _parser(), _spell_out_once(words[:end])
    _refuse_misspelt(own, set(parser.words()))
    _refuse_misplaced(own, parser)
    namespace, unknown = parser.parse_known_args(own)
    flags, trainer = vars(namespace), words[end + 1 :]
    command = flags["command"]
    if unknown:
        hint = f"memwatch {command} --help lists the options" if command else "memwatch --help lists the options"
        if command == "run":
            hint = "write -- before the trainer's command, as in: memwatch run -- python main.py"
        if unknown[0] in set(parser.words()):
            raise ConfigError(f"{unknown[0]} has no meaning for memwatch {command}", f"leave it out; {hint}")
        raise ConfigError(f"not understood: {' '.join(unknown)}", hint)
    if command == "run" and not trainer:
        raise ConfigError("run needs the trainer's command", "as in: memwatch run -- python main.py")
    if command != "run" and trainer:
        raise ConfigError(f"not understood: {' '.join(trainer)}", "to start a trainer: memwatch run -- python main.py")
    if len(flags.get("log", ())) == 1:
        [flags["log"]] = flags["log"]
    named = [f"--{name}" for name in TARGET_FLAGS if name in flags]
    if named and command not in COMMANDS_WITH_TARGET:
        raise ConfigError(f"{', '.join(named)} has no meaning for memwatch {command}", "leave it out")
    return flags, trainer


def _refuse_misspelt(own: Sequence[str], known: set[str]) -> None:
    """ConfigError for an option of no command, or a first word that is no command: argparse blames what follows."""
    options = (word.partition("=")[0] for word in own if word.startswith("--") and word != "--")
    first = own[:1] if own and not own[0].startswith("-") else []
    for word in (*first, *options):
        if word not in known:
            import difflib

            close = next(iter(difflib.get_close_matches(word, known, n=1)), "")
            fix = f"did you mean {close}?" if close else "memwatch --help lists the commands and options"
            raise ConfigError(f"not understood: {word}", fix)


def _refuse_misplaced(own: Sequence[str], parser: _Parser) -> None:
    """ConfigError for an option of a command where no command is given: argparse takes its value for one."""
    commands = parser.commands()
    if any(word in commands for word in own):
        return
    options = {word.partition("=")[0] for word in own if word.startswith("--")}
    for option in sorted(options - parser.own_options()):
        owners = ", ".join(f"memwatch {name}" for name, one in commands.items() if option in one.own_options())
        if owners:
            raise ConfigError(
                f"{option} is an option of {owners}", f"give the command, as in: {owners.split(', ')[0]} {option} ..."
            )


def _spell_out_once(words: Sequence[str]) -> list[str]:
    """Replace -1 by --once, unless it is an option's value. As an option of argparse's, -1 would make -5 one, too."""
    return [
        "--once" if word == "-1" and (not before.startswith("-") or before in OPTIONS_WITHOUT_VALUE) else word
        for before, word in zip(("", *words), words, strict=False)
    ]


def _parser() -> _Parser:
    process, common = _process_options(), _some_options(*_OPTIONS)
    target, log = _options("its output", process)
    text = (
        "its log; -: standard input; several, or a quoted pattern: one of them; default: its stdout, if that is a file"
    )
    log.add_argument("--log", metavar="FILE", action="append", help=text)
    parser = _Parser(
        prog="memwatch",
        description=DESCRIPTION,
        epilog=EXIT_CODES_HELP,
        parents=[target, common],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(function="watch_serve_markers.watch")
    option = parser.add_argument
    option("--version", action="store_true", help="print the version, the build and what it runs on")
    option("--once", action="store_true", help="or -1: print one screen and exit; nothing is stored or sent")

    add = _command_adder(parser.add_subparsers(dest="command", title="commands", metavar="COMMAND"))
    _add_run(add, common)
    text, exits = "tell a watch where a script is", "0; 2 when a mark is none; 3 when nobody watches"
    option = add("mark", "mark.mark", text, example="mark epoch=3 total=25", exits=exits).add_argument
    option("marks", metavar="NAME=VALUE", nargs="+", help="epoch=3, total=25, phase=train, buffer=448/5000, saved=FILE")
    option("--pid", help="the process that is watched; default: this script, or one above it")
    text = "watch the trainers of this machine, or one after another, as a service"
    example, exits = "serve --config /etc/memwatch/trainer.yaml", "0 when it is stopped; 2 for its configuration"
    add("serve", "watch_serve_markers.serve", text, target, common, example=example, exits=exits)
    text, exits = (
        "watch a leaking example trainer under a real limit",
        "0; 13 when it did not end as it should; 14 Ctrl-C",
    )
    add("demo", "demo.demo", text, common, example="demo", exits=exits)
    text = "check what works on this machine and what does not, and why"
    exits = "0; 3 when a check has failed; 2 for its options"
    option = add("doctor", "doctor.doctor", text, target, common, example="doctor --pid 1234", exits=exits).add_argument
    option("--test-notify", action="store_true", help="send a test message to the addresses of notify")
    _add_top(add)
    _add_examination_commands(add, process)
    _add_history_commands(add)
    _add_config_commands(add, target, common)
    _add_schemas(add)
    text = "show the markers that memwatch finds in a log"
    add("markers", "watch_serve_markers.markers", text, _some_options("json"), example="markers main.log").add_argument(
        "file", metavar="LOG", help="-: standard input"
    )
    _add_replay(add)
    add("man", "version_manual_completion.manual", "show the manual page")
    text = "print a script that completes memwatch's commands and options with Tab"
    example = "completion bash >> ~/.bashrc"
    option = add("completion", "version_manual_completion.completion", text, example=example).add_argument
    option("shell", choices=("bash", "zsh", "fish"))
    return parser


def _command_adder(commands: argparse._SubParsersAction[_Parser]) -> Callable[..., _Parser]:
    def add(
        name: str, function: str, help: str, *parents: _Parser, example: str = "", exits: str = USUAL_EXITS
    ) -> _Parser:
        """Add a command that runs `function`, "module.function" of this folder; `exits`: what its exit codes mean."""
        description = f"{help[0].upper()}{help[1:]}."
        ends = [f"example: memwatch {example}"] if example else []
        ends += [f"exit codes: {exits}"] if function else []
        parser = commands.add_parser(
            name,
            help=help,
            description=description,
            epilog="\n".join(ends),
            parents=parents,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.set_defaults(function=function)
        return parser

    return add


def _add_run(add: Callable[..., _Parser], common: _Parser) -> None:
    text, example = "start a trainer and watch it", "run --limit 64GB -- python main.py"
    run = add("run", "run.run", text, common, example=example, exits=RUN_EXITS)
    run.usage = "%(prog)s [OPTION ...] -- COMMAND [ARGUMENT ...]"
    option = run.add_argument_group("after an interrupt that saved").add_argument
    text = "restart it at most N times, while each restart makes progress"
    option("--max-restarts", metavar="N", help=text)
    text = "start it again with this command: one argument, split into words as a shell does; no shell runs it"
    option("--resume-with", metavar="CMD", help=text)


def _add_top(add: Callable[..., _Parser]) -> None:
    text = "show the live view of a watch that runs elsewhere, or all trainers of a node, from its endpoint"
    example = "top http://node-7:9877"
    option = add("top", "top.top", text, _some_options("history", "json"), example=example).add_argument
    option("url", metavar="URL", nargs="?", help="its endpoint; default http://127.0.0.1:9877")
    option("--once", action="store_true", help="or -1: print one screen and exit")
    option("--ca-file", metavar="FILE", help="the CA of its certificate; default: those that this machine trusts")
    option("--cert", metavar="FILE", help="your certificate, if it requires one")
    option("--key", metavar="FILE", help="the key of your certificate")
    option("--password-file", metavar="FILE", help="for https://NAME@HOST:PORT; default: $MEMWATCH_PASSWORD")


def _add_examination_commands(add: Callable[..., _Parser], process: _Parser) -> None:
    details, group = _options("more details")
    group.add_argument("--holders", metavar="TYPE", action="append", help="show what holds the objects of this type")
    group.add_argument("--track", metavar="PATH", action="append", help="show the size of an attribute: Trainer.buffer")

    text = "count the objects of a running Python by type, from outside"
    option = add(
        "census", "examination_commands.census", text, process, details, example="census --pid 1234"
    ).add_argument
    option("--json", action="store_true", help="print all types as one JSON object")
    text = "print sizes, also of arrays and text; takes two to three times the CPU time"
    option("--bytes", action="store_true", help=text)

    text = "find the lines of code that raise the memory of a running Python, from outside"
    option = add(
        "profile", "examination_commands.profile", text, process, example="profile --pid 1234 -o growth.json"
    ).add_argument
    option("--seconds", metavar="SECONDS", help="how long to follow memory; default 30; Ctrl-C ends it")
    text = "write the stacks: for speedscope (.json), or folded (any other name)"
    option("-o", "--output", metavar="FILE", help=text)
    option("--json", action="store_true", help="print all stacks as one JSON object")

    text = "store what a trainer holds now: memory, objects, stacks"
    option = add(
        "snapshot",
        "examination_commands.snapshot",
        text,
        process,
        details,
        example="snapshot --pid 1234 --label before",
    ).add_argument
    option("--label", help="the snapshot's name; default: the time")
    option("-o", "--output", metavar="FILE", help="the file to write; default: in the state folder")
    option("--json", action="store_true", help="print the snapshot as one JSON object")

    text, example = "show the differences between two snapshots", "diff before after"
    option = add("diff", "examination_commands.diff", text, example=example).add_argument
    text = "a file, or the label of a snapshot (the latest with that label)"
    option("snapshots", nargs=2, metavar="SNAPSHOT", help=text)
    option("--json", action="store_true", help="print the differences as one JSON object")


def _add_history_commands(add: Callable[..., _Parser]) -> None:
    common = _some_options("history", "json")
    one_run, group = _options("the run")
    group.add_argument("runs", metavar="HISTORY", nargs="?", help="the history file; default: in the state folder")
    group.add_argument("--run", dest="run_id", metavar="ID", help="which run; default: the latest")

    text = "how the latest run ended, or stands: why, and what to do"
    add("last", "history_commands.last", text, one_run, common, example="last")

    text = "report on a run of the history: a summary, a page, a table"
    report = add("report", "history_commands.report", text, one_run, common, example="report -o run.html")
    report.add_argument("--list", action="store_true", help="list the runs of the history")
    text = "write a page (.html), the summary (.txt), .json or .csv"
    report.add_argument("-o", "--output", metavar="FILE", help=text)
    forms = report.add_mutually_exclusive_group()
    forms.add_argument("--text", action="store_true", help="print the summary as tables; the default")
    forms.add_argument("--csv", action="store_true", help="print the generations as CSV")

    text = "what a run of another length or capacity would need, from recorded runs"
    option = add("plan", "plan.plan", text, common, example="plan --generations 100 --set buffer=20000").add_argument
    text = "a history file (its latest run), or a run's ID; default: the latest run"
    option("plans", metavar="RUN", nargs="*", help=text)
    option("--generations", metavar="N", help="how many there are to be; default: as the log says")
    text = "another capacity of a buffer, as the log calls it: buffer=20000"
    option("--set", metavar="NAME=CAPACITY", action="append", help=text)

    text = "compare two runs, as before and after a fix"
    option = add(
        "compare", "history_commands.compare", text, common, example="compare before.db after.db -o both.html"
    ).add_argument
    text = "a history file (its latest run), or a run's ID; ID@2: its second process"
    option("pair", metavar="RUN", nargs=2, help=text)
    option("-o", "--output", metavar="FILE.html", help="write a page, with the memory of both in one chart")

    text = "export a run of the history as a trace, for memwatch replay"
    option = add("export", "history_commands.export", text, one_run, common, example="export -o run.csv").add_argument
    option("-o", "--output", metavar="FILE", help="a name in .csv, .csv.gz or .parquet; default: CSV to stdout")


def _add_config_commands(add: Callable[..., _Parser], target: _Parser, common: _Parser) -> None:
    config = add("config", "", "check the configuration, show its values, print its schema")
    aspect = _command_adder(config.add_subparsers(dest="aspect", title="commands", metavar="COMMAND", required=True))
    text = "check configuration files, and list all errors in them"
    example = "config check memwatch.yaml"
    option = aspect(
        "check", "config_commands.check_config", text, _some_options("profile"), example=example
    ).add_argument
    option("files", metavar="FILE", nargs="*", help="default: the file of --config")
    text = "show all values that a watch here would use, and where each comes from"
    aspect("show", "config_commands.show_config", text, target, common, example="config show --config memwatch.yaml")
    text = "print the JSON Schema of a configuration file, for editors"
    aspect("schema", "config_commands.print_config_schema", text, example="config schema > memwatch.schema.json")


def _add_schemas(add: Callable[..., _Parser]) -> None:
    schemas = add("schema", "", "print the JSON Schema of the lines of --json, or of a configuration file")
    of = _command_adder(schemas.add_subparsers(dest="of", title="commands", metavar="OF", required=True))
    text = "print the JSON Schema of the lines of --json"
    of("events", "config_commands.print_event_schema", text, example="schema events > events.schema.json")
    text = "print the JSON Schema of a configuration file, for editors"
    of("config", "config_commands.print_config_schema", text, example="schema config > memwatch.schema.json")


def _add_replay(add: Callable[..., _Parser]) -> None:
    text = "run the engine over a recorded trace, or over a run of the history"
    common = _some_options("profile", "limit", "checkpoint_time", "json", "verbose")
    option = add("replay", "replay.replay", text, common, example="replay run.csv --limit 64GB").add_argument
    option("file", metavar="FILE", help="a trace (.csv), or a history: compares the replay with what was reported")
    option("--run", dest="run_id", metavar="ID", help="a run of the history; default: the latest")
    option("--plot", metavar="FILE", help="draw the replay: a page (.html) or a picture (.svg)")
    option("--why", metavar="SECONDS", help="why it would interrupt, or not, so long after the start: the numbers")


# --- options that several commands share ----------------------------------------------------------------------------


def _options(title: str, *parents: _Parser) -> tuple[_Parser, argparse._ArgumentGroup]:
    """Return a parser to be the parent of commands, and a group for its options, which help shows under `title`."""
    parser = _Parser(add_help=False, parents=parents)
    return parser, parser.add_argument_group(title)


def _process_options() -> _Parser:
    parser, group = _options("the trainer")
    option = group.add_argument
    option("--pid", help="its process ID")
    option("--pidfile", metavar="FILE", help="a file that contains its PID")
    option("--match", metavar="REGEX", help="a pattern of its command line; exactly one process must match")
    option("--unit", metavar="NAME", help="its systemd unit")
    option("--cgroup", metavar="PATH", help="its cgroup, as in /proc/PID/cgroup; * and ? stand for anything")
    return parser


_OPTIONS: Mapping[str, dict[str, Any]] = {  # of several commands
    "config": {"metavar": "FILE", "help": "settings in YAML; default: $MEMWATCH_CONFIG"},
    "profile": {"metavar": "NAME", "help": "a set of settings: observe, default, aggressive"},
    "listen": {"metavar": "ADDR:PORT", "help": "serve metrics and status here; default 127.0.0.1:9877, or none"},
    "web_config": {
        "metavar": "FILE",
        "help": "TLS and passwords for --listen, in the format of Prometheus's exporters",
    },
    "history": {"metavar": "FILE", "help": "where the history is; default: in the state folder, or none"},
    "limit": {"metavar": "SIZE", "help": "an additional limit, as 175GB or 163GiB"},
    "force_limit": {"action": "store_true", "help": "use --limit also where more is in use as the watch begins"},
    "interval": {"metavar": "SECONDS", "help": "time between samples; default 1"},
    "checkpoint_time": {"metavar": "SECONDS", "help": "how long a checkpoint takes; default: measured"},
    "dry_run": {"action": "store_true", "help": "send no signal, do everything else"},
    "json": {"action": "store_true", "help": "print JSON on stdout; a watch prints its events as lines"},
    "verbose": {"action": "store_true", "help": "print every marker and generation"},
}


def _some_options(*names: str) -> _Parser:
    """Return a parser with --config and those of _OPTIONS with these names."""
    parser, group = _options("options")
    for name in dict.fromkeys(("config", *names)):
        short = ("-v",) if name == "verbose" else ()
        group.add_argument(*short, f"--{name.replace('_', '-')}", **_OPTIONS[name])
    return parser


# --- standard streams -----------------------------------------------------------------------------------------------


def _open_standard_streams() -> None:
    """Open those that are closed (`>&-`): else the next file to be opened gets the number, and all that is printed."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _print_error(error: MemwatchError) -> None:
    lines = []
    for one in (error, *(error.others if isinstance(error, ConfigError) else ())):
        lines += [f"memwatch: {one}", *(f"          {line}" for line in one.hint.splitlines())]
    try:
        print("\n".join(lines), file=sys.stderr)
    except OSError:  # stderr has no reader
        pass


def _flush(code: int) -> int:
    try:
        sys.stdout.flush()
    except OSError as error:
        return _give_up_stdout(error, code)
    return int(code)


def _give_up_stdout(error: OSError, code: int) -> int:
    """Return the exit code when stdout cannot be written. A reader that left is normal; a full disk is an error."""
    if error.errno not in (errno.EPIPE, errno.EIO, errno.ENOSPC):
        raise error
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still buffered goes nowhere: no second error at exit
    if error.errno != errno.ENOSPC:
        return int(code)
    _print_error(MemwatchError("the output cannot be written: no space left"))
    return int(code or ExitCode.INTERNAL)
