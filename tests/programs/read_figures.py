"""Prints what trackers wrote, as JSON: `[[tag, step, value], ...]` of a TensorBoard or MLflow folder, rows of wandb.

Read by the trackers' own readers, in the environment that has them: `read_figures.py PATH`.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def events(folder: Path) -> list[list[Any]]:
    """As TensorBoard itself would load them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    loaded = EventAccumulator(str(folder))
    loaded.Reload()
    return [[tag, one.step, one.value] for tag in loaded.Tags()["scalars"] for one in loaded.Scalars(tag)]


def metrics(folder: Path) -> list[list[Any]]:
    """Of the one run in a folder of MLflow."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(folder.as_uri())
    [run] = client.search_runs([one.experiment_id for one in client.search_experiments()])
    history = ((tag, client.get_metric_history(run.info.run_id, tag)) for tag in run.data.metrics)
    return [[tag, one.step, one.value] for tag, points in history for one in points]


def log_records(data: bytes) -> Iterator[bytes]:
    """Of LevelDB's log format behind a header of 7 bytes: blocks of 32 KiB, chunks of CRC, length and kind in them."""
    at, parts = 7, b""
    while at + 7 <= len(data):
        _, length, kind = struct.unpack_from("<IHB", data, at)
        at += 7
        parts += data[at : at + length]
        at += length
        if kind in (1, 4):  # whole, or the last of several
            yield parts
            parts = b""
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768


def rows(path: Path) -> dict[str, Any]:
    """The rows of a run, what they are drawn over, and its configuration."""
    from wandb.proto.wandb_internal_pb2 import Record

    found: dict[str, Any] = {"rows": [], "axes": {}, "id": "", "config": {}}
    for data in log_records(path.read_bytes()):
        record = Record()
        record.ParseFromString(data)
        if record.HasField("history"):
            items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
            found["rows"].append({key: json.loads(value) for key, value in items.items()})
        if record.HasField("metric") and record.metric.step_metric:
            found["axes"][record.metric.glob_name or record.metric.name] = record.metric.step_metric
        if record.HasField("run"):
            found["id"] = record.run.run_id
            found["config"] = {item.key: json.loads(item.value_json) for item in record.run.config.update}
    return found


if __name__ == "__main__":
    named = Path(sys.argv[1])
    of_mlflow = named.name == "mlruns"
    print(json.dumps(metrics(named) if of_mlflow else events(named) if named.is_dir() else rows(named)))
