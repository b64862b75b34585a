"""Every function of memwatch's that makes facts of foreign bytes: what it is given, and how it may refuse."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from hostile import histories
from hostile.contract import Parser
from memwatch import endpoint, wire
from memwatch.backtest.trace import read_stretches
from memwatch.config import Config, parse_listen
from memwatch.core.expectations import parse as parse_expectation
from memwatch.core.inspection import Inspection
from memwatch.core.procstat import parse_stat
from memwatch.core.units import parse_size
from memwatch.diagnosis.heap import memory, tracks
from memwatch.diagnosis.stacks import parse_stacks
from memwatch.errors import MemwatchError
from memwatch.history.codec import decode_event
from memwatch.outputs.request import RequestError, parse_request
from memwatch.sources import cgroup, gpulinks, kmsg, mappings, mounts, ownership, pages, procfs, ranks, units
from memwatch.sources.logtail import Segmenter
from memwatch.sources.markers import MarkerFinder
from support.presets import packaged_presets

PRESETS = packaged_presets()


def text(parse: Callable[[str], object]) -> Callable[[bytes], object]:
    """Of text: bytes as they come from the kernel."""
    return lambda raw: parse(raw.decode("utf-8", "surrogateescape"))


def _log(raw: bytes) -> object:
    finder, segmenter = MarkerFinder(PRESETS), Segmenter()
    pieces = [*segmenter.feed(raw), *segmenter.flush()]
    return [hit for piece in pieces for hit in finder.feed(piece.data, piece.byte, piece.line, 0.0)]


def _trace(raw: bytes) -> object:
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        file.write(raw)
        file.flush()
        return [*read_stretches(Path(file.name))]


def _environ(raw: bytes) -> dict[str, str]:
    pairs = (item.decode("utf-8", "surrogateescape").partition("=") for item in raw.split(b"\0"))
    return {name: value for name, _, value in pairs}


_STATUS = (
    b"Name:\tpython\nTgid:\t7\nNSpid:\t7 1\nVmSize:\t 9 kB\nRssFile:\t  5340 kB\nRssShmem:\t 0 kB\nVmSwap:\t 0 kB\n"
)
_MAPS = b"55d0a0-55d0c0 r--p 00000000 08:01 131 /usr/bin/python3\n7ffd00-7ffd20 rw-p 00000000 00:00 0 [stack]\n"

PARSERS = {
    "procfs.parse_statm": Parser(procfs.parse_statm, (b"5120 1800 900 700 0 1200 0\n",)),
    "procfs.parse_status": Parser(procfs.parse_status, (_STATUS,)),
    "procfs.parse_limits": Parser(procfs.parse_limits, (b"Max data size   unlimited   unlimited   bytes\n",)),
    "procfs.parse_children": Parser(procfs.parse_children, (b"12 13 14 ",)),
    "procfs.parse_last_pid": Parser(procfs.parse_last_pid, (b"0.1 0.2 0.3 1/345 4711\n",)),
    "procfs.parse_meminfo": Parser(procfs.parse_meminfo, (b"MemTotal: 9 kB\nMemAvailable: 5 kB\nSwapFree: 1 kB\n",)),
    "procstat.parse_stat": Parser(
        parse_stat, (b"7 (foo) Z ) S 1 7 7 0 -1" + b" 4194304" * 45,), (MemwatchError, ValueError)
    ),
    "cgroup.parse_page_cache": Parser(cgroup.parse_page_cache, (b"anon 5\nfile 7\ninactive_file 3\nactive_file 2\n",)),
    "cgroup.parse_limit": Parser(cgroup.parse_limit, (b"max\n", b"9223372036854771712\n")),
    "cgroup.parse_usage": Parser(cgroup.parse_usage, (b"123456\n",)),
    "cgroup.parse_oom_kills": Parser(cgroup.parse_oom_kills, (b"low 0\noom 1\noom_kill 1\n",)),
    "mounts.parse_proc_cgroup": Parser(mounts.parse_proc_cgroup, (b"9:memory:/job\n0::/job\n",)),
    "mounts.parse_mountinfo": Parser(
        mounts.parse_mountinfo, (b"36 35 0:31 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n",)
    ),
    "pages.parse_maps": Parser(pages.parse_maps, (_MAPS,)),
    "mappings.parse_kinds": Parser(lambda raw: [*mappings.parse_kinds(raw)], (_MAPS + b"Rss:  12 kB\n",)),
    "memory.parse_maps": Parser(text(memory.parse_maps), (_MAPS,)),
    "ownership.parse_procs": Parser(ownership.parse_procs, (b"12\n13\n",)),
    "kmsg.parse_record": Parser(
        kmsg.parse_record,
        (
            b"6,1,2,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/job,task=python,pid=7,uid=0",
            b"3,1,2,-;Memory cgroup out of memory: Killed process 7 (python) total-vm:9kB, anon-rss:8kB, file-rss:1kB",
        ),
    ),
    "gpulinks.parse_nspid": Parser(gpulinks.parse_nspid, (_STATUS,)),
    "units.parse_unit": Parser(
        lambda raw: units.parse_unit("a", raw), (b"Id=a.service\nMainPID=7\nControlGroup=/a\n",)
    ),
    "ranks.parse_rank": Parser(
        lambda raw: ranks.parse_rank(7, _environ(raw)), (b"RANK=1\0LOCAL_RANK=1\0WORLD_SIZE=4",)
    ),
    "stacks.parse_stacks": Parser(parse_stacks, (b'[{"thread_name":"a","active":true,"frames":[]}]',)),
    "request.parse_request": Parser(
        parse_request, (b"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n",), (RequestError,)
    ),
    "codec.decode_event": Parser(
        lambda raw: decode_event("MarkerSeen", raw), (b'{"t":1.0}',), (MemwatchError, wire.ShapeError)
    ),
    "history.file": Parser(histories.read_file, (histories.sound(),)),
    "history.row": Parser(histories.read_row, histories.row_seeds()),
    "endpoint": Parser(lambda raw: endpoint._snapshot("http://a", raw), (b'{"schema":1}',)),
    "snapshots.read": Parser(lambda raw: wire.from_json(raw, Inspection), (b'{"label":"a"}',), (wire.ShapeError,)),
    "wire.read_yaml": Parser(
        lambda raw: wire.convert(wire.read_yaml(raw, "a.yaml").data, Config),
        (b"policy: {act: true}\nlog: {extra: [a.yaml]}\n", b"a: &a [*a]\n", b"a: 1e999\n"),
    ),
    "markers": Parser(
        _log, (b"Epoch 1/5\n 10%|#  | 1/10 [00:01<00:09,  1.0s/it]\r\nMemoryError\n", b"{'loss': 1, 'epoch': 2}\n")
    ),
    "trace": Parser(_trace, (b"t,rss,limit,gen\n0,1,9,1\n1,2,9,2\n", b"t,rss\n0,1e999\nnan,5\n")),
    "units.parse_size": Parser(text(parse_size), (b"175GB", b"1.5 GiB"), (ValueError,)),
    "config.parse_listen": Parser(text(parse_listen), (b"127.0.0.1:9877", b"[::1]:80"), (ValueError,)),
    "expectations.parse": Parser(
        text(parse_expectation), (b"growth < 5GB/generation", b"generations 1-3: +1..2GB each"), (ValueError,)
    ),
    "tracks.parse": Parser(text(tracks.parse), (b"Trainer.kept[*]['a']",)),
}
