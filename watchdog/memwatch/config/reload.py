"""A configuration file that may change while it is in use: a change takes effect once the whole file is valid."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from memwatch.config.settings import Config
from memwatch.core.events import Event
from memwatch.errors import ConfigError, SourceError
from memwatch.outputs.http.client_access import Stamp, stamp

FILE_CHECK_SECONDS = 2.0  # time between two checks whether the file has changed


class ReloadableConfig:
    """The configuration in use, and the next one. As a source of events it fails while the file cannot be used."""

    name = "configuration"

    def __init__(self, load: Callable[[], Config], path: Path | None) -> None:
        """`load` returns the whole configuration, checked; the first time, its ConfigError is raised here."""
        self._load, self._path = load, path
        self._stamp = self._read_stamp()
        self._checked_t = 0.0
        self._problem = ""
        self._is_requested = False
        self.config = load()
        self.pending: Config | None = None  # the next configuration, where it differs

    def request_reload(self) -> None:
        """Have the file read again, whether it has changed or not."""
        self._is_requested = True

    def should_reload(self, now: float) -> bool:
        """Whether the file has changed, or a reload was requested."""
        if not self._is_requested and now - self._checked_t < FILE_CHECK_SECONDS:
            return False
        self._checked_t = now
        return self._is_requested or self._read_stamp() != self._stamp

    def reload(self) -> bool:
        """Read the file again into `pending`; False when it is not valid."""
        self._is_requested, self._stamp = False, self._read_stamp()
        try:
            config = self._load()
        except ConfigError as error:
            self.reject_pending(error)
            return False
        self._problem, self.pending = "", config if config != self.config else None
        return True

    def apply_pending(self) -> None:
        self.config, self.pending = self.pending or self.config, None

    def reject_pending(self, error: ConfigError) -> None:
        """Keep the configuration in use, and report why the next one cannot be used."""
        errors = (f"{one} ({one.hint})" if one.hint else str(one) for one in (error, *error.others))
        self._problem, self.pending = "; ".join(errors), None

    def poll(self, now: float) -> Sequence[Event]:
        """Return no event; SourceError while the file cannot be used."""
        if self._problem:
            raise SourceError(f"{self._problem}; the previous configuration stays in force")
        return ()

    def close(self) -> None:
        """Nothing is open."""

    def _read_stamp(self) -> Stamp | None:
        try:
            return None if self._path is None else stamp(os.stat(self._path))  # noqa: PTH116 - twice as fast
        except OSError:
            return None
