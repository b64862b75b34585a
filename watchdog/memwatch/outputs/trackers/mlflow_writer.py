"""Figures as a run of MLflow, in a process of its own. No other module imports mlflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlflow.entities import Metric
from mlflow.tracking import MlflowClient

RUN_TAG = "memwatch.run"
MOST_METRICS = 1000  # of one request: a limit of the server


class MlflowRun:
    """A run in an experiment, which is created if there is none. After a restart the same run goes on."""

    problem = ""

    def __init__(self, run: str, command: str, *, experiment: str, tracking_uri: str | None) -> None:
        """A `tracking_uri` of None: the value of MLFLOW_TRACKING_URI, else what mlflow takes without it."""
        self._client = MlflowClient(tracking_uri)
        known = self._client.get_experiment_by_name(experiment)
        place = known.experiment_id if known is not None else self._client.create_experiment(experiment)
        found = self._client.search_runs([place], f"tags.`{RUN_TAG}` = '{run}'", max_results=1)
        if found:
            self._run_id = found[0].info.run_id
            self._client.update_run(self._run_id, status="RUNNING")
        else:
            tags = {RUN_TAG: run, "memwatch.command": command}
            self._run_id = self._client.create_run(place, tags=tags, run_name=f"memwatch-{run}").info.run_id

    def write_records(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Writes each at its generation or minute, rounded down, as the step."""
        metrics = [
            Metric(tag, float(value), int(1000 * one["t"]), int(one["at"]))
            for one in records
            for tag, value in one["figures"].items()
        ]
        for i in range(0, len(metrics), MOST_METRICS):
            self._client.log_batch(self._run_id, metrics=metrics[i : i + MOST_METRICS])

    def close(self) -> None:
        self._client.set_terminated(self._run_id)
