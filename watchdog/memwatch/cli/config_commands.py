"""`memwatch config check`, `show` and `schema`, `memwatch schema`: the configuration and the formats of files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from memwatch.app.composition import configured_presets, describe_interrupt_plan
from memwatch.app.watch_session import make_access_policy
from memwatch.cli.watch_serve_markers import config_file
from memwatch.config.load import load_config, load_with_origins
from memwatch.config.settings import Config
from memwatch.errors import ConfigError, ExitCode, MemwatchError
from memwatch.system import json_and_yaml

COMMENT_COLUMN = 40  # of what `config show` prints


def check_config(flags: Mapping[str, Any]) -> int:
    """`memwatch config check [FILE...]`: print a line for each valid file; ConfigError with all that is wrong."""
    errors: list[ConfigError] = []
    paths: Sequence[Path | None] = [Path(name) for name in flags.get("files", ())] or [config_file(flags)]
    for path in paths:
        name = "without a file" if path is None else str(path)
        try:
            config = load_config(path, flags=flags, environ=os.environ)
        except ConfigError as error:
            errors += (error, *error.others)
            continue
        refused = [ConfigError(f"{name}: {error}", error.hint) for error in _errors_at_start(config)]
        errors += refused
        if not refused:
            print(f"{name}: valid: {_summary(config)}")
    if errors:
        errors[0].others = tuple(errors[1:])
        raise errors[0]
    return ExitCode.ENDED


def _errors_at_start(config: Config) -> Iterator[MemwatchError]:
    """What a watch would refuse when it starts: other files that are named, packages that are not installed."""
    checks: list[Callable[[Config], object]] = [configured_presets, make_access_policy]
    if config.enabled_extras:
        from memwatch.app.tracker_setup import check_extra

        checks += [partial(check_extra, name=name) for name in config.enabled_extras]
    for check in checks:
        try:
            check(config)
        except MemwatchError as error:
            yield error


def _summary(config: Config) -> str:
    address, history = config.listen_address, config.history_path(os.environ)
    listens = "serves nothing" if address is None else "listens at {}:{}".format(*address)
    stores = "stores no history" if history is None else f"stores {history}"
    return f"{describe_interrupt_plan(config)}; {listens}; {stores}"


def show_config(flags: Mapping[str, Any]) -> int:
    """`memwatch config show`: print all values that a watch here would use, and where those that are set come from."""
    shown = {name: value for name, value in flags.items() if name != "json"}  # it selects what is printed here
    config, origins = load_with_origins(config_file(flags), flags=shown, environ=os.environ)
    config = _without_passwords(config)
    if "json" in flags:
        print(json_and_yaml.to_shown_json({"config": asdict(config), "origins": origins}))
    else:
        print("\n".join(_yaml_lines(config, origins)))
    return ExitCode.ENDED


def _without_passwords(config: Config) -> Config:
    urls = tuple(json_and_yaml.mask_url_rest(url) for url in config.notify.urls)
    return replace(config, notify=replace(config.notify, urls=urls))


def _yaml_lines(record: object, origins: Mapping[str, str], path: str = "", indent: str = "") -> Iterator[str]:
    for item in fields(record):  # type: ignore[arg-type]
        value, inner = getattr(record, item.name), f"{path}.{item.name}" if path else item.name
        if is_dataclass(value):
            yield f"{indent}{item.name}:"
            yield from _yaml_lines(value, origins, inner, f"{indent}  ")
            continue
        line = f"{indent}{item.name}: {json_and_yaml.to_yaml(value)}"
        notes = [origins[inner]] if inner in origins else []
        if inner == "notify.urls" and value:
            notes.append("the text after :// is left out: this file cannot be used as it is")
        yield f"{line:<{COMMENT_COLUMN}} # {'; '.join(notes)}" if notes else line


def print_config_schema(_: Mapping[str, Any]) -> int:
    """`memwatch config schema`, `memwatch schema config`: print the JSON Schema of a configuration file."""
    from memwatch.config.json_schema import config_schema

    print(json.dumps(config_schema(), indent=2, ensure_ascii=False))
    return ExitCode.ENDED


def print_event_schema(_: Mapping[str, Any]) -> int:
    """`memwatch schema events`: print the JSON Schema of the lines of `--json`."""
    from memwatch.outputs.event_schema import event_schema

    print(json.dumps(event_schema(), indent=2, ensure_ascii=False))
    return ExitCode.ENDED
