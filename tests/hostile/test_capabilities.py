"""What each capability buys a memwatch of another user than the trainer's, and what it does without."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.commoner import NOBODY, Commons, as_user, commons, needs_two_users
from support.processes import WAIT, python, running

POWERS = """
import json, os, sys
from memwatch.actions.signal_sender import PidfdSignaller
from memwatch.diagnosis.heap.remote_memory import RemoteMemory
from memwatch.errors import SourceError
from memwatch.sources.memory.kernel_oom_log import KmsgReader
from memwatch.sources.memory.pagemap import PagemapFile
from memwatch.sources.procfs import parse_statm
from memwatch.sources.target.target_facts import identify, is_same_process, read_environ
from memwatch.system.process_priority import lock_memory, raise_priority
pid = int(sys.argv[1])

def may(look):
    try:
        return look() is not False
    except (OSError, SourceError):
        return False

print(json.dumps([name for name, look in {
    "memory": lambda: parse_statm(open(f"/proc/{pid}/statm", "rb").read()),
    "interrupt": lambda: PidfdSignaller(identify(pid), is_same_process).may_signal(),
    "diagnosis": lambda: RemoteMemory(pid),
    "folder": lambda: os.readlink(f"/proc/{pid}/cwd"),
    "open files": lambda: os.readlink(f"/proc/{pid}/fd/1"),
    "environment": lambda: read_environ(pid) is not None,
    "shared pages": lambda: PagemapFile(pid).read_page_kinds(0, 1),
    "the kernel's record": KmsgReader,
    "realtime": lambda: raise_priority() is None,
    "lock_memory": lambda: lock_memory() is None,
}.items() if may(look)]))
"""
BOUGHT = {
    (): (),
    ("kill",): ("interrupt",),
    ("sys_ptrace",): ("diagnosis", "folder"),
    ("sys_ptrace", "dac_read_search"): ("diagnosis", "folder", "open files", "environment", "shared pages"),
    ("dac_read_search",): (),
    ("syslog",): ("the kernel's record",),
    ("sys_nice",): ("realtime",),
    ("ipc_lock",): ("lock_memory",),
}


@pytest.fixture(scope="module")
def here() -> Iterator[Commons]:
    with commons() as found:
        yield found


@pytest.mark.integration
@needs_two_users
@pytest.mark.parametrize("capabilities", BOUGHT, ids=lambda names: "+".join(names) or "none")
def test_a_capability_buys_what_the_table_says_and_no_more(here: Commons, capabilities: tuple[str, ...]) -> None:
    if "syslog" not in capabilities and Path("/proc/sys/kernel/dmesg_restrict").read_text().strip() == "0":
        capabilities = (*capabilities, "syslog")  # the kernel's log is open to everybody here
    with running(python(WAIT)) as trainer:
        command = as_user(NOBODY, here.python, "-c", POWERS, str(trainer.pid), capabilities=capabilities)
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=here.environ())
    assert said.returncode == 0, said.stderr
    bought = {power for names, powers in BOUGHT.items() if set(names) <= set(capabilities) for power in powers}
    assert set(json.loads(said.stdout)) == {"memory"} | bought
