"""What a user does in a day, with memwatch as it is installed: every command once, on real processes and files."""

from __future__ import annotations

import ast
import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from memwatch.errors import ExitCode
from support.processes import WAIT, running
from support.wheels import Installed

LOG = "".join(f"Epoch {epoch}/5\nloss: 0.{9 - epoch}\n" for epoch in range(1, 6))
TRAINER = "import time\nfor i in range(1, 4): print(f'Epoch {i}/3', flush=True); time.sleep(0.4)\nexit(7)"
HOLDER = f"class Kept: pass\nkept = [Kept() for _ in range(1234)]\n{WAIT}"
# prints a log, once it may
PRINTER = """
import sys, time
print("ready", flush=True)
sys.stdin.readline()
with open(sys.argv[1]) as lines, open(sys.argv[2], "w") as log:
    for line in lines:
        print(line, end="", file=log, flush=True)
        time.sleep(0.005)
time.sleep(0.5)
"""
SOON = ("--listen", "none", "--interval", "0.1")


def use(installed: Installed, folder: Path) -> None:
    """Watch a run, read what is kept of it, look into a process."""
    history = folder / "history.db"
    ran = installed.memwatch("run", *SOON, "--history", str(history), "--", installed.python, "-c", TRAINER)
    assert (ran.returncode, ran.stdout) == (7, "Epoch 1/3\nEpoch 2/3\nEpoch 3/3\n"), ran.stderr
    assert "failed (exit status 7)" in said(installed, "report", str(history))
    said(installed, "report", str(history), "-o", str(folder / "report.html"))
    said(installed, "export", str(history), "-o", str(folder / "trace.csv"))
    assert "End after" in said(installed, "replay", str(folder / "trace.csv"), "--plot", str(folder / "plot.svg"))
    said(installed, "compare", str(history), str(history), "-o", str(folder / "both.html"))
    assert all((folder / name).stat().st_size for name in ("report.html", "plot.svg", "both.html"))
    assert "limit" in said(installed, "doctor", "--listen", "none")
    assert (
        json.loads(said(installed, "config", "show", "--profile", "observe", "--json"))["config"]["policy"]["act"]
        is False
    )
    assert json.loads(said(installed, "config", "schema"))["properties"]["profile"]["description"]
    (folder / "main.log").write_text(LOG)
    assert "epoch 5 of 5 (preset: keras)" in said(installed, "markers", str(folder / "main.log"))
    look(installed)


def look(installed: Installed) -> None:
    """Into a process that runs."""
    with running([installed.python, "-c", HOLDER]) as holder:
        pid = ("--pid", str(holder.pid))
        counted = {one["type"]: one["count"] for one in json.loads(said(installed, "census", *pid, "--json"))["types"]}
        assert counted["__main__.Kept"] == 1234
        kept = said(installed, "snapshot", *pid, "--label", "one")
        assert "Kept" in kept
        assert "no stacks" not in kept
        said(installed, "diff", "one", "one")
        said(installed, "profile", *pid, "--seconds", "0.3")
        assert f"PID {holder.pid}" in said(installed, *pid, "--once", "--listen", "none")


def said(installed: Installed, *arguments: str) -> str:
    """What it prints, when all is well."""
    done = installed.memwatch(*arguments)
    assert done.returncode == 0, f"memwatch {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def watch_log(installed: Installed, folder: Path, text: bytes) -> list[dict[str, object]]:
    """The events of a watch, from beside, of a trainer that prints such a log."""
    (folder / "printed").write_bytes(text)
    log = folder / "main.log"
    log.touch()
    with running([installed.python, "-c", PRINTER, str(folder / "printed"), str(log)]) as trainer:
        options = ("--pid", str(trainer.pid), "--log", str(log), "--history", "none", "--json", "-v")
        watch = installed.start(*options, *SOON, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert watch.stdout is not None
        first = watch.stdout.readline()
        trainer.stdin.write("\n")
        trainer.stdin.flush()
        rest, complaints = watch.communicate(timeout=60)
        assert watch.returncode == 0, complaints
    return [json.loads(line) for line in (first, *rest.splitlines())]


def demo(installed: Installed) -> None:
    """The demo begins, and is stopped."""
    begun = installed.start("demo", "--listen", "none", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert begun.stdout is not None
    assert begun.stdout.readline().startswith("An evolutionary trainer")
    begun.send_signal(signal.SIGINT)
    out, complaints = begun.communicate(timeout=60)
    assert begun.returncode == ExitCode.STOPPED, complaints
    assert out.endswith("Nothing is left behind.\n")


# --- extras ---------------------------------------------------------------------------------------------------------

CONFIGURED = {
    "auth": "basic_auth_users: {ann: $2b$04$abcdefghijklmnopqrstuuSMhqhnCCXUwCKxCKo6L2Kr5kCNkNzLi}\n",
    "mlflow": "mlflow: {experiment: tests, tracking_uri: FOLDER/mlruns}\n",
    "notify": "notify: {urls: ['json://127.0.0.1:9']}\n",
    "tensorboard": "tensorboard: {dir: FOLDER/tb}\n",
    "wandb": "wandb: {project: tests, mode: offline, dir: FOLDER}\n",
}


def wanting(extra: str, folder: Path) -> list[str]:
    """A command that works with an extra alone."""
    (folder / "file.yaml").write_text(CONFIGURED.get(extra, "").replace("FOLDER", str(folder)))
    if extra == "parquet":
        return ["export", "--history", str(folder / "history.db"), "-o", str(folder / "run.parquet")]
    if extra == "auth":
        return ["doctor", "--history", "none", "--listen", "127.0.0.1:0", "--web-config", str(folder / "file.yaml")]
    return ["doctor", "--history", "none", "--listen", "none", "--config", str(folder / "file.yaml")]


def doctored(extra: str, text: str) -> Callable[[Installed, Path], None]:
    """The doctor tries it out, with this outcome."""

    def check(installed: Installed, folder: Path) -> None:
        assert text in said(installed, *wanting(extra, folder))

    return check


def tracked(extra: str, pattern: str) -> Callable[[Installed, Path], None]:
    """A run leaves such a file."""

    def check(installed: Installed, folder: Path) -> None:
        doctored(extra, "installed")(installed, folder)
        settings = ("--history", "none", "--config", str(folder / "file.yaml"))
        installed.memwatch("run", *SOON, *settings, "--", installed.python, "-c", TRAINER)
        [made] = folder.glob(pattern)
        assert made.stat().st_size

    return check


def exported(installed: Installed, folder: Path) -> None:
    """A run is read back by the package itself."""
    history = ("--history", str(folder / "history.db"))
    installed.memwatch("run", *SOON, *history, "--", installed.python, "-c", TRAINER)
    said(installed, *wanting("parquet", folder))
    code = "import sys; from pyarrow import parquet; print(parquet.read_table(sys.argv[1]).to_pydict())"
    columns = ast.literal_eval(installed.run(installed.python, "-c", code, str(folder / "run.parquet")).stdout)
    assert len(columns["t"]) >= 5 and columns["t"] == sorted(columns["t"])
    assert all(used > 1_000_000 for used in columns["rss"])
    assert {None, 1.0, 2.0, 3.0} >= set(columns["gen"]) >= {1.0, 2.0}
    assert set(columns["unit"]) <= {"epoch", None}


EXTRA: dict[str, Callable[[Installed, Path], None]] = {
    "auth": doctored("auth", "asks for a password"),
    "mlflow": tracked("mlflow", "mlruns/*/*/metrics/memory/host/used_mb"),
    "notify": doctored("notify", "its addresses are understood"),
    "parquet": exported,
    "tensorboard": tracked("tensorboard", "tb/memwatch-*/events.out.tfevents.*"),
    "wandb": tracked("wandb", "wandb/offline-run-*/run-*.wandb"),
}
