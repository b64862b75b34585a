"""The lines of the example trainer that leak, and which line a profile of it tells first."""

from __future__ import annotations

from memwatch.core.examination import AllocationProfile
from memwatch.core.leaks.growth_attribution import by_line
from support.mainjob import EXAMPLE

COPIES = "return self.market[self.day - WINDOW : self.day].copy()"
LINES: dict[str, tuple[str, ...]] = {
    "buffer": ("self.buffer.add(Transition(window, after.copy(), action, reward))", COPIES),  # one half each
    "environments": ("environment = Environment(self.market.copy(), WINDOW)",),
    "losses": ("inputs = np.stack([self.buffer.items[i].before for i in picks])",),
    "population": (
        "self.kept.append([(agent, np.tile(self.market[:WINDOW], (24, 1, 1))) for agent in self.population])",
    ),
    "figures": ("self.canvas = np.full((480, 640, 4), 255, dtype=np.uint8)",),
    "history": ('self.kept.append({"seen": np.concatenate([window, after]), "reward": reward})',),
}


def options(leak: str, seconds: float) -> list[str]:
    """Of the example. Its buffer is small, unless it leaks: as it fills, it grows more than the others leak."""
    room = [] if leak == "buffer" else ["--capacity", "32"]
    return ["--leak", leak, "--seconds", str(seconds), "--checkpoint-every", "0", *room]


def first_line(found: AllocationProfile) -> str:
    """The text of the line in which memory rose the most; empty without one."""
    lines = by_line(found.credits)
    return EXAMPLE.read_text().splitlines()[lines[0].frame.line - 1].strip() if lines else ""
