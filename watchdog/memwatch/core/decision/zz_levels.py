"""How little room must be left for a look to be wanted at once: levels that the kernel can watch between two looks."""

from __future__ import annotations

from memwatch.core.decision.emergency_interrupt import APPROACH_GUARDS
from memwatch.core.measurements import Limit

GUARDS = (APPROACH_GUARDS, 1.5, 1.0, 0.5, 0.25)  # times the guard against bursts: looks that count, the guard, the end
HALVINGS = 4  # of the room above the highest use so far, down to the first of those


def look_headrooms(limit: Limit, used_bytes: int, peak_bytes: int, guard: float) -> tuple[int, ...]:
    """Bytes of headroom, the most first.

    Below what memory reaches again and again nobody need be woken: the levels divide the room above the highest use so
    far, and follow it as it grows.
    """
    guarded = [share * guard * limit.bytes for share in GUARDS if guard > 0.0]
    above = limit.headroom_bytes - (peak_bytes - used_bytes)
    halves = [above * 0.5**n for n in range(1, HALVINGS + 1)]
    most = guarded[0] if guarded else 0.0
    return tuple([int(room) for room in (*[half for half in halves if half > most], *guarded)])
