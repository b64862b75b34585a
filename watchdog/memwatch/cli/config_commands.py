"""`memwatch config`: is a configuration right, what comes of it here, what may be written in one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from functools import partial
from pathlib import Path

from memwatch.app.composition import configured_presets, describe_interrupt_plan
from memwatch.app.watch_session import make_access_policy
from memwatch.cli.commands import config_file
from memwatch.config.load import LoadedConfig, load_config, load_with_origins
from memwatch.config.settings import Config
from memwatch.errors import ConfigError, ExitCode, MemwatchError
from memwatch.system import json_and_yaml

COMMENT_COLUMN = 40


def check_config(files: Sequence[str], flags: Mapping[str, object]) -> int:
    """`memwatch config check [FILE...]`: a line for each that is right; ConfigError with all that is wrong."""
    wrong: list[ConfigError] = []
    paths: Sequence[Path | None] = [Path(name) for name in files] or [config_file(flags)]
    for path in paths:
        name = "without a file" if path is None else str(path)
        try:
            config = load_config(path, flags=flags, environ=os.environ)
        except ConfigError as error:
            wrong += (error, *error.others)
            continue
        late = [ConfigError(f"{name}: {error}", error.hint) for error in _tried(config)]
        wrong += late
        if not late:
            print(f"{name}: right: {_gist(config)}")
    if wrong:
        wrong[0].others = tuple(wrong[1:])
        raise wrong[0]
    return ExitCode.ENDED


def show_config(flags: Mapping[str, object]) -> int:
    """`memwatch config show`: all values that a watch would have here, with the origin of those that are set."""
    as_json = bool(flags.get("json"))  # how to print it, not a value to be shown
    flags = {key: value for key, value in flags.items() if key != "json"}
    settings = load_with_origins(config_file(flags), flags=flags, environ=os.environ)
    settings = replace(settings, config=_masked(settings.config))
    print(_as_json(settings) if as_json else "\n".join(_lines(settings.config, settings.origins)))
    return ExitCode.ENDED


def print_config_schema() -> int:
    """`memwatch config schema`: the JSON Schema of a configuration file."""
    from memwatch.config.json_schema import config_schema as made

    print(json.dumps(made(), indent=2, ensure_ascii=False))
    return ExitCode.ENDED


# --- check ----------------------------------------------------------------------------------------------------------


def _tried(config: Config) -> Iterator[MemwatchError]:
    """What of it a watch would refuse as it begins: other files that it names, what is not installed."""
    trials: list[Callable[[Config], object]] = [configured_presets, make_access_policy]
    if config.enabled_extras:
        from memwatch.app.tracker_setup import check_extra

        trials += [partial(check_extra, name=name) for name in config.enabled_extras]
    for trial in trials:
        try:
            trial(config)
        except MemwatchError as error:
            yield error


def _gist(config: Config) -> str:
    address, history = config.listen_address, config.history_path(os.environ)
    serves = "serves nothing" if address is None else "listens at {}:{}".format(*address)
    return (
        f"{describe_interrupt_plan(config)}; {serves}; {'keeps no history' if history is None else f'keeps {history}'}"
    )


# --- show -----------------------------------------------------------------------------------------------------------


def _masked(config: Config) -> Config:
    """Without the passwords."""
    return replace(
        config, notify=replace(config.notify, urls=tuple(map(json_and_yaml.mask_url_rest, config.notify.urls)))
    )


def _as_json(settings: LoadedConfig) -> str:
    return json_and_yaml.to_shown_json({"config": asdict(settings.config), "origins": settings.origins})


def _lines(record: object, origins: Mapping[str, str], path: str = "", indent: str = "") -> Iterator[str]:
    """A record as YAML."""
    for item in fields(record):  # type: ignore[arg-type]
        value, inner = getattr(record, item.name), f"{path}.{item.name}" if path else item.name
        if is_dataclass(value):
            yield f"{indent}{item.name}:"
            yield from _lines(value, origins, inner, f"{indent}  ")
            continue
        line = f"{indent}{item.name}: {json_and_yaml.to_yaml(value)}"
        notes = [origins[inner]] if inner in origins else []
        if inner == "notify.urls" and value:
            notes.append("what is behind :// is left out: this file cannot be used as it is")
        yield f"{line:<{COMMENT_COLUMN}} # {'; '.join(notes)}" if notes else line
