"""How long before the limit a checkpoint must be requested: the time that it takes, and that confirmation takes."""

from __future__ import annotations

from collections.abc import Sequence

from memwatch.core.checkpoint_timing import CheckpointTracker
from memwatch.core.decision.policy import Policy, lead_seconds
from memwatch.core.generation_ledger import GenerationLedger

INTERVAL_SAMPLES = 8  # that the recent sample interval is averaged over, with fading weights


class LeadTimeEstimator:
    """Told when samples are taken; reads the ledger and the checkpoints that the engine keeps. Seconds."""

    def __init__(self, policy: Policy, ledger: GenerationLedger, checkpoints: CheckpointTracker) -> None:
        self._policy, self._ledger, self._checkpoints = policy, ledger, checkpoints
        self._last_t: float | None = None
        self.sample_interval_seconds = 0.0  # the recent one

    def add_sample_times(self, times: Sequence[float]) -> None:
        last, usual = times[0] if self._last_t is None else self._last_t, self.sample_interval_seconds
        for t in times:
            if t > last:
                usual = t - last if usual == 0 else usual + (t - last - usual) / INTERVAL_SAMPLES
            last = t
        self._last_t, self.sample_interval_seconds = last, usual

    def checkpoint_estimate(self, t: float) -> tuple[float, str]:
        """Seconds that a checkpoint is expected to need, and where that comes from."""
        seconds, origin = self._checkpoints.duration_estimate(
            self._policy.checkpoint_seconds, self._ledger.generation_seconds(t)
        )
        # a checkpoint that begins and ends between two samples is measured as 0: it took up to the sample interval
        return (max(seconds, self.sample_interval_seconds) if origin == "measured" else seconds), origin

    def lead_seconds(self, checkpoint_seconds: float) -> float:
        """From the first sample that calls for an interrupt until the checkpoint, which takes so long, is complete."""
        confirm = max(self._policy.second_look_seconds, self.sample_interval_seconds) + self.sample_interval_seconds
        return lead_seconds(checkpoint_seconds, confirm)
