"""memwatch@.service under a real systemd: in a container, at the machine's own speed."""

from __future__ import annotations

import time

import pytest

from memwatch.errors import ExitCode
from support.exposure import SYSTEMD
from support.machine import NEW_USER, QUICK, WATCH, Machine, configuration
from support.markdown import blocks
from support.stopwatch import Stopwatch

pytestmark = [pytest.mark.nspawn, pytest.mark.timeout(300)]

CAPABILITIES = 1 << 5 | 1 << 19  # CAP_KILL, CAP_SYS_PTRACE
ROOMY = QUICK.replace("200MB", "10GB")


@pytest.fixture(autouse=True)
def anew(machine: Machine) -> None:
    """No trainer, a watch that waits, nothing told yet."""
    machine.sh(
        "systemctl list-units --plain --no-legend --state=active 'train*.service' | while read unit _; do "
        "systemctl kill -s KILL $unit; systemctl stop $unit; done; rm -rf /etc/systemd/system/memwatch@*.d"
    )
    machine.configure(configuration())
    machine.sh(f"systemctl stop {WATCH}; rm -rf /var/lib/memwatch/*; systemctl daemon-reload")
    machine.turn_over()
    machine.sh(f"systemctl start {WATCH}")


def test_it_runs_as_a_user_with_two_capabilities_and_no_more(machine: Machine) -> None:
    status = dict(line.split(":\t", 1) for line in machine.sh(f"cat /proc/{machine.pid()}/status").splitlines())
    assert machine.sh(f"ps -o user= -p {machine.pid()}").strip() == "memwatch"
    assert {int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {CAPABILITIES}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    calls = set(machine.show(WATCH, "SystemCallFilter").split())
    assert "process_vm_readv" in calls and not calls & {"ptrace", "process_vm_writev", "chown", "mount"}
    assert machine.sh("stat -c '%U %a' /var/lib/memwatch/trainer").split() == ["memwatch", "700"]


def test_a_leak_is_interrupted_and_saved_and_systemd_tells_the_story(machine: Machine) -> None:
    machine.until(lambda: machine.show(WATCH, "StatusText").startswith("waiting for a trainer: "))
    machine.trainer("saves 60 8 0.5")
    machine.until(lambda: machine.told("exited"))
    assert "interrupted by memwatch, checkpoint saved" in machine.told("exited")[0]
    grave = machine.journal(priority="warning")
    assert {one["MESSAGE"].split()[0] for one in grave} >= {"interrupt"} and {one["PRIORITY"] for one in grave} == {"4"}
    ended = " ".join(one["MESSAGE"] for one in machine.journal("trainer"))
    assert "exit status 130" in machine.told("exited")[0] and "Deactivated successfully" in ended, ended
    assert machine.sh("stat -c %s /srv/trainer/state.ckpt").strip() == "1000000"
    machine.until(lambda: "checkpoint saved" in machine.show(WATCH, "StatusText"))


def test_another_users_trainer_is_examined_with_the_right_to_trace_alone(machine: Machine) -> None:
    machine.configure(configuration(quick=ROOMY, more="verbose: true\n"))
    machine.trainer("saves 60 8 2")
    machine.until(lambda: machine.told("examined") or machine.told("not_examined"))
    assert not machine.told("not_examined") and "objects" in machine.told("examined")[0]


def test_killed_it_comes_back_with_its_past_however_often(machine: Machine) -> None:
    machine.drop_in("RestartSec=50ms")
    machine.configure(configuration(quick=ROOMY))
    machine.trainer("saves 600 1 3")  # a generation is longer than memwatch is away
    machine.until(lambda: machine.main_memory().get("verdict", "warming_up") != "warming_up")
    machine.until(lambda: len(machine.main_memory()["generations"]) > 8)  # samples alone are kept every ten seconds
    run = machine.status()["run_id"]
    for count in range(1, 21):
        before = len(machine.told("attached"))
        machine.sh(f"kill -9 {machine.pid()}")
        machine.until(lambda before=before: len(machine.told("attached")) > before)
        machine.until(machine.main_memory)
        assert machine.status()["run_id"] == run
        assert count > 1 or machine.main_memory()["verdict"] != "warming_up"
    assert machine.show(WATCH, "NRestarts") == "20"
    assert all(one.startswith("watching again") for one in machine.told("attached")[1:])
    numbers = [one["index"] for one in machine.main_memory()["generations"]]
    assert numbers == [numbers[0] + i for i in range(len(numbers))] and numbers[0] <= 3


def test_a_reload_is_in_force_and_a_broken_one_is_refused(machine: Machine) -> None:
    machine.configure(configuration(quick=ROOMY))
    machine.trainer("saves 600 1 0.5")
    machine.until(lambda: machine.told("attached"))
    machine.configure(configuration(quick=ROOMY.replace("10GB", "12GB")))
    machine.sh(f"systemctl reload {WATCH}")
    machine.until(lambda: machine.main_memory().get("limit") == 12_000_000_000)
    machine.configure(configuration(quick=ROOMY.replace("1}", "1, confidence: 7}")))
    machine.sh(f"systemctl reload {WATCH}")
    machine.until(lambda: "policy.confidence is 7" in " ".join(machine.told("source_failed")))
    assert machine.show(WATCH, "ActiveState") == "active" and machine.show(WATCH, "NRestarts") == "0"
    assert machine.main_memory().get("limit") == 12_000_000_000


def test_one_that_stands_still_is_killed_by_systemds_watchdog_and_comes_back(machine: Machine) -> None:
    machine.drop_in("WatchdogSec=2s")
    machine.sh(f"systemctl restart {WATCH}")
    began = machine.pid()
    time.sleep(5.0)  # longer than it may be silent
    assert machine.pid() == began and machine.show(WATCH, "NRestarts") == "0"
    machine.sh(f"kill -STOP {began}")
    machine.until(lambda: machine.show(WATCH, "NRestarts") == "1" and machine.show(WATCH, "ActiveState") == "active")
    assert machine.pid() not in (0, began)
    assert any("watchdog" in one["MESSAGE"].lower() for one in machine.journal())


def test_it_stops_in_time_and_the_trainer_runs_on(machine: Machine) -> None:
    machine.configure(configuration(quick=ROOMY))
    machine.trainer("saves 600 1 0.5")
    machine.until(lambda: machine.told("attached"))
    began = Stopwatch()
    machine.sh(f"systemctl stop {WATCH}")
    assert began.undisturbed_seconds < 5.0
    assert machine.show(WATCH, "Result") == "success" and machine.show(WATCH, "ExecMainStatus") == "0"
    assert not machine.sh("pgrep -u memwatch || true")
    assert machine.show("trainer", "ActiveState") == "active"


def test_what_is_wrong_at_the_start_is_not_tried_again(machine: Machine) -> None:
    machine.sh(f"systemctl stop {WATCH}")
    machine.configure("target: {unit: trainer.service}\nmemory: {limit: lots}\n")
    machine.sh(f"systemctl start {WATCH} || true")
    assert machine.show(WATCH, "ActiveState") == "failed" and machine.show(WATCH, "NRestarts") == "0"
    assert machine.show(WATCH, "ExecMainStatus") == str(int(ExitCode.USAGE))
    assert any(
        "memory.limit" in one["MESSAGE"] and "/etc/memwatch/trainer.yaml:2" in one["MESSAGE"]
        for one in machine.journal()
    )


def test_two_instances_watch_two_trainers(machine: Machine) -> None:
    machine.configure(configuration(quick=ROOMY))
    machine.configure(configuration("train2", 9878, quick=ROOMY), "train2")
    machine.trainer("saves 600 1 0.5")
    machine.trainer("saves 600 1 0.5", "train2")  # its Wants= starts the watch
    machine.until(lambda: machine.told("attached") and machine.told("attached", "memwatch@train2"), "memwatch@train2")
    one, two = machine.status(9877), machine.status(9878)
    assert (one["target"]["pid"], two["target"]["pid"]) == (machine.pid("trainer"), machine.pid("train2"))
    assert machine.sh("ls /var/lib/memwatch").split() == ["train2", "trainer"]
    machine.sh("systemctl stop memwatch@train2")
    assert machine.status(9877)["state"] == "watching"


@pytest.mark.parametrize(("drop_in", "sees"), [("user", True), ("files", True), (None, False)])
def test_what_drop_ins_buy(machine: Machine, drop_in: str | None, sees: bool) -> None:
    if drop_in is not None:
        folder = f"/etc/systemd/system/{WATCH}.service.d"
        machine.sh(
            f"install -D -m 644 -t {folder} /share/systemd/drop-ins/{drop_in}.conf; sed -i s/alice/trainer/ {folder}/*"
        )
    machine.configure(configuration(quick=ROOMY))
    machine.sh(f"{NEW_USER}; systemctl daemon-reload; systemctl restart {WATCH}")
    machine.trainer("saves 600 1 0.5")
    machine.until(lambda: machine.told("armed"))
    notes = " ".join(machine.told("note"))
    assert ("not permitted to see the trainer's open files" not in notes) == sees, notes
    assert machine.sh(f"ps -o user= -p {machine.pid()}").strip() == ("trainer" if drop_in == "user" else "memwatch")


def test_the_other_commands_of_the_readme_do_what_they_say(machine: Machine) -> None:
    _, doctor, upgrade, removal = blocks((SYSTEMD / "README.md").read_text(), "sh")
    machine.configure(configuration(quick=ROOMY))
    machine.trainer("saves 600 1 0.5")
    machine.until(lambda: machine.told("attached"))
    before = machine.pid()
    assert "it catches SIGINT" in machine.sh(doctor)
    machine.sh(f"export PIP_NO_INDEX=1 PIP_FIND_LINKS=/share/dist\n{upgrade}")
    assert machine.pid() not in (0, before)
    machine.sh(f"set -e\n{removal}")
    assert machine.show(WATCH, "LoadState") == "not-found"
    assert not machine.sh(
        "ls -d /opt/memwatch /var/lib/memwatch /etc/memwatch 2> /dev/null; pgrep -f bin.[m]emwatch || true"
    )
    assert machine.show("trainer", "ActiveState") == "active"
