"""Messages to people, through the services that apprise knows. Runs in a process of its own.

No other module imports apprise. Addresses contain passwords and tokens: errors name only their place in the
configuration and their service.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apprise

from memwatch.errors import SourceError


class AppriseNotifier:
    """Sends each message to all addresses."""

    def __init__(self, *, urls: Sequence[str] = (), file: str | None = None) -> None:
        self._known: dict[str, apprise.Apprise] = {}  # by the name that errors use
        wrong = []
        for place, url in _listed(urls, file):
            one = apprise.Apprise()
            if one.add(url):
                self._known[f"{place} ({one[0].service_name})"] = one
            else:
                wrong.append(place)
        self.problem = self._wrong = f"no address that apprise understands: {', '.join(wrong)}" if wrong else ""
        if not self._known:
            raise SourceError(self.problem or "notify.file holds no address")

    def write_records(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Sends each record; one that reached somebody is not sent again. SourceError if one reaches nobody."""
        for one in records:
            failed = [name for name, address in self._known.items() if not _send(address, one)]
            problem = f"not reached: {', '.join(failed)}" if failed else ""
            if len(failed) == len(self._known):
                raise SourceError(problem)
            self.problem = "; ".join(filter(None, (self._wrong, problem)))

    def close(self) -> None:
        pass


def _send(address: apprise.Apprise, message: Mapping[str, Any]) -> bool:
    try:
        return bool(
            address.notify(
                title=message["title"],
                body=message["body"],
                notify_type=message["kind"],
                body_format=apprise.NotifyFormat.TEXT,
            )
        )
    except Exception:  # its message may contain the address
        return False


def _listed(urls: Sequence[str], file: str | None) -> Iterator[tuple[str, str]]:
    """Yields each address, and where it is configured."""
    yield from ((f"notify.urls[{i}]", url) for i, url in enumerate(urls))
    if file is None:
        return
    try:
        lines = Path(file).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"notify.file {file} cannot be read: {type(error).__name__}") from error
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.strip().startswith("#"):
            yield f"notify.file line {number}", line.strip()
