"""A real headless Chromium, told what to do over a pipe by its DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-dev-shm-usage"),
    *("--remote-debugging-pipe", "--disable-background-networking", "--disable-component-update"),
)
PATIENCE_SECONDS = 120.0


def found() -> str | None:
    """Its program, if there is one."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """A context; pages of it are opened one after the other."""

    def __init__(self, folder: Path) -> None:
        program = found()
        assert program is not None
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        arguments = [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        script = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, *arguments], pass_fds=(to_read, to_write), stderr=subprocess.DEVNULL
        )
        os.close(to_read)
        os.close(to_write)
        self._rest, self._number = b"", 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """The result of a command; what happens meanwhile is among the events."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            told = self._read()
            if told.get("id") == number:
                assert "error" not in told, told
                result: dict[str, Any] = told["result"]
                return result
            self.events.append(told)
        raise TimeoutError(method)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._from, 1 << 20)
            assert part, "the browser has ended"
            self._rest += part
        one, _, self._rest = self._rest.partition(b"\0")
        told: dict[str, Any] = json.loads(one)
        return told

    def open(self, url: str, width: int = 1100, height: int = 900, dark: bool = False) -> Page:
        """A new page, loaded."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.ask(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        page.ask("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.ask("Emulation.setEmulatedMedia", features=[scheme])
        page.ask("Page.navigate", url=url)
        page.until("document.readyState == 'complete'")
        return page


class Page:
    """One page of a browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command."""
        return self._browser.ask(method, self._session, **parameters)

    def evaluate(self, expression: str) -> Any:
        """What JavaScript makes of it."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until it is true."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.evaluate(expression):
            assert time.monotonic() < deadline, expression
            time.sleep(0.05)

    @property
    def text(self) -> str:
        """All that can be read."""
        return str(self.evaluate("document.body.innerText"))

    @property
    def overflow(self) -> int:
        """Pixels by which it is wider than its window."""
        return int(self.evaluate("document.documentElement.scrollWidth - innerWidth"))

    def picture(self, path: Path) -> bytes:
        """All of it as a PNG, kept in a file."""
        data = base64.b64decode(self.ask("Page.captureScreenshot", captureBeyondViewport=True)["data"])
        path.write_bytes(data)
        return data

    def _own(self, *methods: str) -> list[dict[str, Any]]:
        return [
            one["params"]
            for one in self._browser.events
            if one.get("sessionId") == self._session and one["method"] in methods
        ]

    @property
    def problems(self) -> list[str]:
        """Errors, and what its policy refused."""
        thrown = [str(one["exceptionDetails"]) for one in self._own("Runtime.exceptionThrown")]
        logged = [str(one["entry"]["text"]) for one in self._own("Log.entryAdded") if one["entry"]["level"] == "error"]
        return [text for text in thrown + logged if "favicon" not in text and "404" not in text]

    @property
    def requests(self) -> list[str]:
        """All addresses that were asked for."""
        return [one["request"]["url"] for one in self._own("Network.requestWillBeSent")]


Shown = Callable[[str], Page]
