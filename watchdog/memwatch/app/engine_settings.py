"""The settings of an engine: made from the configuration, kept in the history beside the events of a watch."""

from __future__ import annotations

from dataclasses import dataclass

from memwatch import __version__
from memwatch.config.settings import Config
from memwatch.core.decision.policy import Policy
from memwatch.core.engine.engine import Engine
from memwatch.core.expectations import parse_expectation
from memwatch.core.leaks.examination_schedule import DiagnosisPolicy
from memwatch.history.event_store import EngineRecord
from memwatch.system import json_and_yaml


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """All that an engine depends on besides its events: with the same settings and events it decides the same."""

    policy: Policy
    diagnosis: DiagnosisPolicy
    expectations: tuple[str, ...] = ()

    @staticmethod
    def from_config(config: Config) -> EngineSettings:
        return EngineSettings(config.policy, config.diagnosis_policy, config.expectations)

    @staticmethod
    def from_json(data: bytes) -> EngineSettings:
        """The settings that an earlier watch stored; SerializationError when this memwatch does not know them."""
        return json_and_yaml.from_json(data, EngineSettings)

    def make_engine(self) -> Engine:
        return Engine(self.policy, diagnosis=self.diagnosis, expectations=map(parse_expectation, self.expectations))

    def to_record(self) -> EngineRecord:
        """The settings as the history keeps them, with the version of memwatch."""
        return EngineRecord(__version__, json_and_yaml.to_json(self))
