"""Checks beyond types: each value by itself, then values that must fit together."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator

from memwatch.config.settings import PLAIN_BYTES, RANGES, SIZE_KEYS, Config, NotifyConfig, iter_values, parse_listen
from memwatch.core.expectations import parse_expectation
from memwatch.core.text_and_units import parse_size
from memwatch.errors import ConfigError
from memwatch.system.json_and_yaml import ValueProblem

VARIABLE_NAME = "[A-Za-z_][A-Za-z0-9_]*"
UNCATCHABLE = ("SIGKILL", "SIGSTOP")
SIGNALS = tuple(name for name in signal.Signals.__members__ if name not in UNCATCHABLE)

_Values = dict[str, object]  # by the path of the key


def check_values(config: Config) -> Iterator[ValueProblem]:
    """Yield what is wrong with single values, at most one problem for each."""
    values, refused = dict(iter_values(config)), set[str]()
    for check in (_ranges, _forms, _lists, _signals, _hook, _empty):
        for problem in check(values):
            if problem.path not in refused:
                refused.add(problem.path)
                yield problem


def check_combinations(config: Config) -> Iterator[ValueProblem]:
    """Yield which valid values do not fit together."""
    named = {key: value for key, value in iter_values(config.target) if value is not None}
    if "unit" in named or "cgroup" in named:
        named.pop("match", None)  # it selects among the processes of the unit or cgroup
    first, *others = named or ("",)
    for key in others:
        problem = f"target.{first} names the trainer already"
        yield ValueProblem(f"target.{key}", problem, named[key], "keep one of the two")
    if config.policy.kill and not config.policy.act:
        problem = "memwatch sends no signal while policy.act is false, so it cannot kill"
        fix = "set policy.act to true, or leave policy.kill out"
        yield ValueProblem("policy.kill", problem, True, fix, ("policy.act",))
    if config.actions.hook is None and config.actions.hook_replaces_signal:
        fix = "name a command as actions.hook; to warn only, set policy.act to false"
        yield ValueProblem(
            "actions.hook_replaces_signal", "there is no hook to stop the trainer", True, fix, ("actions.hook",)
        )
    interval, checkpoint = config.memory.interval_seconds, config.policy.checkpoint_seconds
    if checkpoint is not None and interval > checkpoint:
        problem = f"samples {interval:g} s apart are too rare for a checkpoint of {checkpoint:g} s"
        fix = f"set the interval to {checkpoint:g} or less"
        yield ValueProblem("memory.interval_seconds", problem, interval, fix, ("policy.checkpoint_seconds",))
    if config.wandb.project is None:
        for key, value in iter_values(config.wandb):
            if value is not None:
                fix = "name the run's project as wandb.project"
                yield ValueProblem(f"wandb.{key}", "there is no run without a project", value, fix)
    if config.mlflow.experiment is None and config.mlflow.tracking_uri is not None:
        fix = "name the run's experiment as mlflow.experiment"
        yield ValueProblem(
            "mlflow.tracking_uri", "there is no run without an experiment", config.mlflow.tracking_uri, fix
        )


def notifiable_events() -> tuple[str, ...]:
    """All events that `notify.events` may name."""
    from memwatch.outputs.trackers.notification_messages import MESSAGE_TEMPLATES

    return tuple(MESSAGE_TEMPLATES)


# --- the checks of single values ------------------------------------------------------------------------------------


def _ranges(values: _Values) -> Iterator[ValueProblem]:
    for path, (low, high) in RANGES.items():
        value = values[path]
        if isinstance(value, (int, float)) and not low <= value <= high:
            yield ValueProblem(path, "out of range", value, f"write a number from {low:.10g} to {high:.10g}")


def _forms(values: _Values) -> Iterator[ValueProblem]:
    for path in SIZE_KEYS:
        size = str(values[path]).strip()
        if re.fullmatch(r"[\d.]*[1-9][\d.]*", size) and not re.fullmatch(PLAIN_BYTES, size):
            yield ValueProblem(path, "has no unit", values[path], f"write {size}GB, {size}GiB or, for bytes, {size}B")
        yield from _try_to_parse(path, values[path], parse_size, "not a size")
    yield from _try_to_parse("listen", values["listen"], parse_listen, "not an address to listen on")
    yield from _try_to_parse("target.match", values["target.match"], re.compile, "not a regular expression")


def _try_to_parse(path: str, value: object, parse: Callable[[str], object], problem: str) -> Iterator[ValueProblem]:
    try:
        if value is not None:
            parse(str(value))
    except ConfigError as error:
        yield ValueProblem(path, problem, value, error.hint)
    except (ValueError, re.error, OverflowError, RecursionError) as error:
        yield ValueProblem(path, problem, value, str(error))


def _lists(values: _Values) -> Iterator[ValueProblem]:
    for path, rule in _items(values, "node.trainers"):
        yield from _try_to_parse(f"{path}.match", getattr(rule, "match", None), re.compile, "not a regular expression")
    for path, text in _items(values, "expectations"):
        yield from _try_to_parse(path, text, parse_expectation, "not understood")
    for path, text in _items(values, "track"):
        from memwatch.diagnosis.heap.attribute_path_syntax import parse_attribute_path

        yield from _try_to_parse(path, text, parse_attribute_path, "not the path of an attribute")
    for path, event in _items(values, "notify.events"):
        if event not in NotifyConfig().events and event not in (known := notifiable_events()):
            yield ValueProblem(path, "not an event to be notified of", event, f"write some of {', '.join(known)}")


def _items(values: _Values, path: str) -> Iterator[tuple[str, object]]:
    """Yield the path and the value of each item of a list."""
    value = values[path]
    for i, item in enumerate(value if isinstance(value, tuple) else ()):
        yield f"{path}[{i}]", item


def _signals(values: _Values) -> Iterator[ValueProblem]:
    seen = set[object]()
    for path, name in _items(values, "signals.wanted"):
        if name in UNCATCHABLE:
            fix = "take it out; SIGKILL as the last resort is policy.kill"
            yield ValueProblem(path, "no trainer can catch it and save", name, fix)
        elif name not in SIGNALS:
            yield ValueProblem(path, "not a signal", name, "write names as SIGINT, SIGTERM, SIGHUP")
        elif name in seen:
            yield ValueProblem(path, "named twice", name, "take one of them out")
        seen.add(name)
    if not seen:
        fix = "name one, as SIGINT; to warn only, set policy.act to false"
        yield ValueProblem("signals.wanted", "nothing to interrupt with", [], fix)


def _hook(values: _Values) -> Iterator[ValueProblem]:
    if values["actions.hook"] is None and not values["actions.environment"]:
        return
    from memwatch.actions import interrupt_hook

    variables = list(_items(values, "actions.environment"))
    environ = interrupt_hook.hook_environ([str(name) for _, name in variables], os.environ)
    for path, name in variables:
        if not re.fullmatch(VARIABLE_NAME, str(name)):
            fix = "write names alone, as KUBECONFIG: their values are memwatch's own"
            yield ValueProblem(path, "not the name of a variable", name, fix)
    for path, word in _items(values, "actions.hook"):
        try:
            if path.endswith("[0]"):
                interrupt_hook.find_program(str(word), environ)
            else:
                list(interrupt_hook.placeholders(str(word)))
        except ConfigError as error:
            yield ValueProblem(path, str(error), word, error.hint)
    if values["actions.hook"] == ():
        yield ValueProblem("actions.hook", "no command", [], "leave the key out, or name a program")


def _empty(values: _Values) -> Iterator[ValueProblem]:
    for key, value in values.items():
        for path, text in _items(values, key) if isinstance(value, tuple) else [(key, value)]:
            if text == "":
                fix = "leave the key out, or give it a value" if path == key else "take it out"
                yield ValueProblem(path, "empty", "", fix)
