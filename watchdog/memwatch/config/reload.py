"""A configuration file that may change while it is in use: what it says is in force once all of it is right."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from memwatch.config.settings import Config
from memwatch.core.events import Event
from memwatch.errors import ConfigError, SourceError
from memwatch.outputs.http.client_access import Stamp, stamp

FILE_CHECK_SECONDS = 2.0  # between two looks whether the file has changed


class ReloadableConfig:
    """What is in force, and what is to be. As a source of events: it fails while the file cannot be used."""

    name = "configuration"

    def __init__(self, read: Callable[[], Config], path: Path | None) -> None:
        """`read` gives the configuration, all of it checked; its ConfigError is raised here, the first time."""
        self._read, self._path = read, path
        self._seen = self._stamp()
        self._looked_t = 0.0
        self._problem = ""
        self._asked = False
        self.config = read()
        self.pending: Config | None = None  # to be adopted

    def request_reload(self) -> None:
        """The file is to be read again, whether it seems changed or not."""
        self._asked = True

    def should_reload(self, now: float) -> bool:
        """The file is to be read again: it has changed, or somebody has asked."""
        if not self._asked and now - self._looked_t < FILE_CHECK_SECONDS:
            return False
        self._looked_t = now
        return self._asked or self._stamp() != self._seen

    def reload(self) -> bool:
        """Read it again: whether it is right. `fresh` is there when it says something else."""
        self._asked, self._seen = False, self._stamp()
        try:
            config = self._read()
        except ConfigError as error:
            self.reject_pending(error)
            return False
        self._problem, self.pending = "", config if config != self.config else None
        return True

    def apply_pending(self) -> None:
        """What is fresh is in force."""
        self.config, self.pending = self.pending or self.config, None

    def reject_pending(self, error: ConfigError) -> None:
        """What is fresh cannot be had."""
        told = (f"{one} ({one.hint})" if one.hint else str(one) for one in (error, *error.others))
        self._problem, self.pending = "; ".join(told), None

    def poll(self, now: float) -> Sequence[Event]:
        """Nothing ever happens; SourceError while the file cannot be used."""
        if self._problem:
            raise SourceError(f"{self._problem}; what it said before stays in force")
        return ()

    def close(self) -> None:
        """Nothing is held."""

    def _stamp(self) -> Stamp | None:
        try:
            return None if self._path is None else stamp(os.stat(self._path))  # noqa: PTH116 - twice as fast
        except OSError:
            return None
