"""How long before the end a checkpoint must be asked for: the time that it takes, and that a second look takes."""

from __future__ import annotations

from collections.abc import Sequence

from memwatch.core.checkpoint_timing import CheckpointTracker
from memwatch.core.decision.policy import Policy, lead_seconds
from memwatch.core.generation_ledger import GenerationLedger

GAP_LOOKS = 8  # readings that the usual distance between them is averaged over


class LeadTimeEstimator:
    """Told when readings are taken; reads the ledger and the checkpoints that the engine keeps. Seconds."""

    def __init__(self, policy: Policy, ledger: GenerationLedger, checkpoints: CheckpointTracker) -> None:
        self._policy, self._ledger, self._checkpoints = policy, ledger, checkpoints
        self._last_t: float | None = None
        self.sample_interval_seconds = 0.0  # between two readings, of late

    def add_sample_times(self, times: Sequence[float]) -> None:
        """Readings were taken, in this order."""
        last, usual = times[0] if self._last_t is None else self._last_t, self.sample_interval_seconds
        for t in times:
            if t > last:
                usual = t - last if usual == 0 else usual + (t - last - usual) / GAP_LOOKS
            last = t
        self._last_t, self.sample_interval_seconds = last, usual

    def checkpoint_estimate(self, t: float) -> tuple[float, str]:
        """What a checkpoint is taken to need, and where that comes from."""
        seconds, origin = self._checkpoints.duration_estimate(
            self._policy.checkpoint_seconds, self._ledger.generation_seconds(t)
        )
        # begun and complete between two readings is measured as 0: it took less than what lies between them
        return (max(seconds, self.sample_interval_seconds) if origin == "measured" else seconds), origin

    def lead_seconds(self, checkpoint_seconds: float) -> float:
        """From the first look that says so until the checkpoint, which takes so long, is complete."""
        look = max(self._policy.second_look_seconds, self.sample_interval_seconds) + self.sample_interval_seconds
        return lead_seconds(checkpoint_seconds, look)
