"""What a run is judged by: the settings of an engine, kept in the history beside what the engine was fed."""

from __future__ import annotations

from dataclasses import dataclass

from memwatch import __version__
from memwatch.config.settings import Config
from memwatch.core.decision.policy import Policy
from memwatch.core.engine.engine import Engine
from memwatch.core.expectations import parse
from memwatch.core.leaks.examination_schedule import DiagnosisPolicy
from memwatch.history.event_store import Judge
from memwatch.system import serialization


@dataclass(frozen=True, slots=True)
class Settings:
    """All that an engine goes by besides what it is fed: the same, fed the same, decides the same."""

    policy: Policy
    diagnosis: DiagnosisPolicy
    expectations: tuple[str, ...] = ()

    @staticmethod
    def of(config: Config) -> Settings:
        """As configured."""
        return Settings(config.policy, config.examining, config.expectations)

    @staticmethod
    def kept(data: bytes) -> Settings:
        """As an earlier watch kept them; wire.ShapeError when they are not those of this memwatch."""
        return serialization.from_json(data, Settings)

    def engine(self) -> Engine:
        """One that goes by them."""
        return Engine(self.policy, diagnosis=self.diagnosis, expectations=map(parse, self.expectations))

    def to_keep(self) -> Judge:
        """For the history."""
        return Judge(__version__, serialization.to_json(self))
