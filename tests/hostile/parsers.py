"""Every function of memwatch's that makes facts of foreign bytes: what it is given, and how it may refuse."""

from __future__ import annotations

import io
import json
import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from hostile import heaps, histories
from hostile.contract import Parser
from hostile.defiled import harmful
from memwatch.app import examination_launcher
from memwatch.app.engine_settings import EngineSettings
from memwatch.cli import examination_commands, top
from memwatch.cli.watch_serve_markers import print_snapshot
from memwatch.config import web_config
from memwatch.config.settings import Config, parse_listen
from memwatch.core.decision.policy import Policy
from memwatch.core.engine.engine import Engine
from memwatch.core.events import Attached, Sampled
from memwatch.core.examination import AllocationProfile, Examination, StackFrame, StackGrowth, ThreadStack
from memwatch.core.expectations import parse_expectation
from memwatch.core.leaks.examination_schedule import DiagnosisPolicy
from memwatch.core.leaks.process_snapshot import ProcessSnapshot, diff_process_snapshots
from memwatch.core.measurements import HOST, Limit, Sample, Target, Usage
from memwatch.core.proc_stat import parse_stat
from memwatch.core.text_and_units import parse_size
from memwatch.core.trainer_rules import Workload, parse_cgroup_path
from memwatch.diagnosis.heap import attribute_path_syntax, remote_memory
from memwatch.diagnosis.heap.stack_frames import line_of
from memwatch.diagnosis.thread_stacks import parse_stacks
from memwatch.errors import AbsentError, ConfigError, MemwatchError, SourceError
from memwatch.history import row_codec
from memwatch.history.row_codec import decode_event
from memwatch.history.trace_files import read_batches
from memwatch.outputs.http.client_access import AccessPolicy
from memwatch.outputs.http.password_hashes import Passwords
from memwatch.outputs.http.routes import RequestError, parse_request
from memwatch.outputs.node.node_status import NodeStatus, cells, node_status
from memwatch.outputs.node.state_channel import TrainerState
from memwatch.outputs.status_json import snapshot_to_dict
from memwatch.outputs.text import process_snapshot_text as inspected
from memwatch.outputs.text import profile_formats
from memwatch.outputs.text.exit_summary import render_summary
from memwatch.outputs.text.process_snapshot_text import render_census
from memwatch.outputs.trackers import tracker_proxy
from memwatch.sources import checkpoint_files, kernel_files, procfs
from memwatch.sources.gpu import trainer_gpus
from memwatch.sources.gpu.gpu_reader import validate
from memwatch.sources.gpu.nvml_helper_messages import NvmlAnswer
from memwatch.sources.log import table_counters
from memwatch.sources.log.log_tail import LogSegmenter
from memwatch.sources.log.marker_parser import MarkerFinder
from memwatch.sources.memory import (
    cgroup,
    kernel_oom_log,
    pagemap,
    process_tree,
    tmpfs,
)
from memwatch.sources.progress import marks
from memwatch.sources.progress.progress_files import TensorBoardEvents
from memwatch.sources.target import systemd_unit, target_facts
from memwatch.sources.target.target_facts import is_torchrun
from memwatch.system import json_and_yaml
from memwatch.system.json_and_yaml import to_shown_json
from support.examinations import examined
from support.presets import packaged_presets
from support.recorded import Recording
from support.snapshots import make_diagnosis, make_sample, make_snapshot, make_view

PRESETS = packaged_presets()


def text(parse: Callable[[str], object]) -> Callable[[bytes], object]:
    """Of text: bytes as they come from the kernel."""
    return lambda raw: parse(raw.decode("utf-8", "surrogateescape"))


def _log(raw: bytes) -> object:
    finder, segmenter = MarkerFinder(PRESETS), LogSegmenter()
    pieces = [*segmenter.split(raw), *segmenter.flush()]
    return [hit for piece in pieces for hit in finder.find_markers(piece.data, piece.byte, piece.line, 0.0)]


def _trace(raw: bytes) -> object:
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        file.write(raw)
        file.flush()
        return [*read_batches(Path(file.name))]


def _event_file(raw: bytes) -> object:
    with _file(raw) as path, closing(TensorBoardEvents(path)) as source:
        return list(source.poll(0.0))


def _environ(raw: bytes) -> dict[str, str]:
    pairs = (item.decode("utf-8", "surrogateescape").partition("=") for item in raw.split(b"\0"))
    return {name: value for name, _, value in pairs}


@contextmanager
def _file(raw: bytes, suffix: str = "") -> Iterator[Path]:
    with tempfile.NamedTemporaryFile(suffix=suffix) as file:
        file.write(raw)
        file.flush()
        yield Path(file.name)


def _web_config(raw: bytes) -> object:
    with _file(raw) as path:
        return web_config.load_web_config(path).limit


def _authorization(raw: bytes) -> object:
    return AccessPolicy(passwords=Passwords({"a": "$2y$04$" + "a" * 53}, lambda *_: False)).refusal(
        raw.decode("latin-1")
    )


def _run_identity(raw: bytes) -> object:
    argv = [os.fsdecode(word) for word in raw.split(b"\0")]
    return [
        target_facts.identify_run(_environ(raw), argv, agent=agent, host="h", run_id="r") for agent in (False, True)
    ], is_torchrun(argv)


def _event(raw: bytes) -> object:
    """By its first byte one of all kinds; what comes of it in an engine, and how that is told."""
    kinds = sorted(row_codec._KINDS)
    event = decode_event(kinds[raw[0] % len(kinds)] if raw else "", raw[1:])
    engine = Engine(Policy(), diagnosis=DiagnosisPolicy())
    engine.feed(Attached(0.0, Target("boot", 7, 7), "a"))
    for one in (event, Sampled(1.0, Sample((Usage(HOST, 9, Limit(99, "host", 90)),))), event):
        if one is not None:
            engine.feed(one)
    end = engine.snapshot()
    return event, to_shown_json(snapshot_to_dict(end)), render_summary(end)


def _shown_status(raw: bytes) -> object:
    """The answer of another memwatch, as the view of it shows it."""
    found = top._parse_status("http://a", raw)
    if isinstance(found, NodeStatus):
        return [cells(row) for row in found.trainers]
    for as_json in (False, True):
        print_snapshot(found, io.StringIO(), as_json)
    return found


def _compared(raw: bytes) -> object:
    """A snapshot file beside another, as people and programs are told."""
    with _file(raw, ".json") as path:
        found = examination_commands.load_process_snapshot(str(path), {})
    difference = diff_process_snapshots(INSPECTION, found)
    return (
        found,
        inspected.render_snapshot(found),
        inspected.render_inspection_diff(difference),
        json_and_yaml.to_shown_json(difference),
    )


def _examined(raw: bytes) -> object:
    """What an examination's process leaves, and what is made of its parts."""
    found = json_and_yaml.from_json(raw, Examination)
    if found.profile is not None:
        folded, speedscope = (
            profile_formats.folded(found.profile.credits),
            profile_formats.speedscope(found.profile.credits, "a"),
        )
        assert not harmful(folded) and isinstance(json.loads(speedscope), dict)
        profile_formats.render_profile(found.profile)
    return found, "" if found.census is None else render_census(found.census)


def _names(raw: bytes) -> object:
    name = os.fsdecode(raw.replace(b"\0", b"")[:255])
    return checkpoint_files.name_suggests_checkpoint(name), checkpoint_files.is_temporary(name)


def _fdinfo(raw: bytes) -> object:
    with _file(raw) as path:
        return (
            checkpoint_files.write_position(str(path)),
            [*checkpoint_files.mapped_inodes(str(path))],
            checkpoint_files.is_whole(str(path)),
            checkpoint_files.content_kind(str(path)),
        )


def _line(raw: bytes) -> object:
    offset, minor = int.from_bytes(raw[:2], "little"), 8 + (raw[2] if len(raw) > 2 else 0) % 8
    return line_of(raw[3:], 1, offset, minor)


_STATUS = (
    b"Name:\tpython\nTgid:\t7\nNSpid:\t7 1\nVmSize:\t 9 kB\nRssFile:\t  5340 kB\nRssShmem:\t 0 kB\nVmSwap:\t 0 kB\n"
)
SHOWN = snapshot_to_dict(make_snapshot(2, 1, diagnosis=make_diagnosis()))
STATE = TrainerState(7, "watch", Workload(pod="a"), make_snapshot(2))
_ROWS = (  # bytes where a number is expected, times that are none, settings that are a number, fields of another type
    *(b"\xc2k0\0\0\0\0\0\0\xf0\x7f", b"\xb6\xa5\0a", b"\xfd\xe6\xf1[]", b"\x97=\xaa{}", b"QM\x0f", b"N6\x82"),
    *(b"\xe7\xbb`99999999999999999", b"Nv\xd4\xff\xff\xff\xff\xff\xff\xff\x7f", b"\xb6d\xdd99999999999999999"),
    *(b',\x03\x00{"resource":"host","verdict":null}', b',\x07\x00{"resource":"host","gen":{},"delta":"a"}'),
)
_EVENTS = tuple(
    bytes((sorted(row_codec._KINDS).index(type(event).__name__),)) + row_codec.encode_event(event)[1]
    for event in {type(event): event for event in Recording(generations=3, samples=9, killed_in=2.5).events()}.values()
    if not isinstance(event, Sampled)
)
EXAMINATION = replace(
    examined(
        3,
        counts={"dict": 5},
        sizes={"dict": 5},
        containers={"__main__.A.kept": 9},
        ways={("dict", "a.b[i]"): 5},
        kinds={"heap": 9},
    ).found,
    threads=(ThreadStack("a", True, (StackFrame("A.b", "/a.py", 3),)),),
    profile=AllocationProfile(1.0, 0.1, 9, (StackGrowth((StackFrame("A.b", "/a.py", 3),), 9),)),
)
INSPECTION = ProcessSnapshot("a", 1.0, Target("boot", 7, 7), "python a.py", make_sample(make_view(), 1), EXAMINATION)
_MAPS = b"55d0a0-55d0c0 r--p 00000000 08:01 131 /usr/bin/python3\n7ffd00-7ffd20 rw-p 00000000 00:00 0 [stack]\n"

PARSERS = {
    "procfs.parse_statm": Parser(procfs.parse_statm, (b"5120 1800 900 700 0 1200 0\n",)),
    "procfs.parse_status": Parser(procfs.parse_status, (_STATUS,)),
    "procfs.parse_limits": Parser(procfs.parse_limits, (b"Max data size   unlimited   unlimited   bytes\n",)),
    "procfs.parse_pids": Parser(procfs.parse_pids, (b"12 13 14 ", b"12\n13\n")),
    "procfs.parse_last_pid": Parser(procfs.parse_last_pid, (b"0.1 0.2 0.3 1/345 4711\n",)),
    "procfs.parse_meminfo": Parser(procfs.parse_meminfo, (b"MemTotal: 9 kB\nMemAvailable: 5 kB\nSwapFree: 1 kB\n",)),
    "proc_stat.parse_stat": Parser(
        parse_stat, (b"7 (foo) Z ) S 1 7 7 0 -1" + b" 4194304" * 45,), (MemwatchError, ValueError)
    ),
    "kernel_files.parse_count": Parser(kernel_files.parse_count, (b"100732928", b"9" * 20)),
    "kernel_files.parse_field": Parser(
        lambda raw: kernel_files.parse_field(raw, b"MemTotal:", b" kB\n"), (b"MemTotal:       24684092 kB\n",)
    ),
    "cgroup.parse_reclaimable_cache": Parser(
        cgroup.parse_reclaimable_cache, (b"anon 5\nfile 7\ninactive_file 3\nactive_file 2\n",)
    ),
    "cgroup.parse_limit": Parser(cgroup.parse_limit, (b"max\n", b"9223372036854771712\n")),
    "cgroup.parse_usage": Parser(cgroup.parse_usage, (b"123456\n",)),
    "cgroup.parse_oom_kills": Parser(cgroup.parse_oom_kills, (b"low 0\noom 1\noom_kill 1\n",)),
    "cgroup.parse_proc_cgroup": Parser(cgroup.parse_proc_cgroup, (b"9:memory:/job\n0::/job\n",)),
    "cgroup.parse_mountinfo": Parser(
        cgroup.parse_mountinfo, (b"36 35 0:31 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n",)
    ),
    "tmpfs.parse_tmpfs_mounts": Parser(
        tmpfs.parse_tmpfs_mounts, (b"30 25 0:27 / /dev/shm rw,relatime - tmpfs tmpfs rw,size=245760k\n",)
    ),
    "pagemap.parse_maps": Parser(pagemap.parse_maps, (_MAPS,)),
    "table_counters.parse_box_row": Parser(text(table_counters.parse_box_row), (b"| iterations | 2 |", b"| n | 1,2 |")),
    "pagemap.parse_memory_kinds": Parser(lambda raw: [*pagemap.parse_memory_kinds(raw)], (_MAPS + b"Rss:  12 kB\n",)),
    "remote_memory.parse_maps": Parser(text(remote_memory.parse_maps), (_MAPS,), found=(b"9" * 400 + _MAPS,)),
    "marks.parse_mark": Parser(
        marks.parse_mark, (b'{"epoch": 3, "total": 25, "phase": "train", "buffer": [448, 5000], "t": 1.5}',)
    ),
    "kernel_oom_log.parse_record": Parser(
        kernel_oom_log.parse_record,
        (
            b"6,1,2,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/job,task=python,pid=7,uid=0",
            b"3,1,2,-;Memory cgroup out of memory: Killed process 7 (python) total-vm:9kB, anon-rss:8kB, file-rss:1kB",
        ),
    ),
    "trainer_gpus.parse_nspid": Parser(trainer_gpus.parse_nspid, (_STATUS,)),
    "systemd_unit.parse_unit": Parser(
        lambda raw: systemd_unit.parse_unit("a", raw),
        (b"Id=a.service\nMainPID=7\nControlGroup=/a\n",),
        found=(b"MainPID=" + b"9" * 400,),
    ),
    "systemd_unit.parse_exit_status": Parser(
        lambda raw: systemd_unit.parse_exit_status(4711, raw),
        (b"ExecMainPID=4711\nExecMainCode=2\nExecMainStatus=9\n",),
    ),
    "target_facts.parse_number": Parser(text(target_facts.parse_number), (b"12", b"9" * 20)),
    "process_tree.parse_rank": Parser(
        lambda raw: process_tree.parse_rank(7, _environ(raw)), (b"RANK=1\0LOCAL_RANK=1\0WORLD_SIZE=4",)
    ),
    "thread_stacks.parse_stacks": Parser(parse_stacks, (b'[{"thread_name":"a","active":true,"frames":[]}]',)),
    "routes.parse_request": Parser(
        parse_request, (b"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n",), (RequestError,)
    ),
    "codec.decode_event": Parser(_event, _EVENTS),
    "history.file": Parser(histories.read_file, (histories.sound(),)),
    "history.row": Parser(histories.read_row, histories.row_seeds(), found=_ROWS),
    "endpoint": Parser(
        _shown_status,
        (b'{"schema":1}', json_and_yaml.to_json(SHOWN), json_and_yaml.to_json(node_status([STATE], 1760000000.0))),
        found=tuple(
            json_and_yaml.to_json({**SHOWN, "resources": [{**SHOWN["resources"][0], "timeline": steps}]})
            for steps in ([[1, 2, 3, 4]], [[2e9, 1, 2], [1760000150.0, 1, 2]])
        ),
    ),
    "state_channel.state": Parser(
        lambda raw: json_and_yaml.from_msgpack(raw, TrainerState), (json_and_yaml.to_msgpack(STATE),), (ValueError,)
    ),
    "trainer_rules.parse_cgroup_path": Parser(
        text(parse_cgroup_path), (b"/slurm/uid_0/job_7/step_0", b"/docker/" + b"ab" * 32, b"/system.slice/a.service")
    ),
    "snapshots": Parser(_compared, (b'{"label":"a"}', json_and_yaml.to_json(INSPECTION))),
    "examiner": Parser(_examined, (b"{}", json_and_yaml.to_json(EXAMINATION)), (json_and_yaml.SerializationError,)),
    "judge.settings": Parser(
        lambda raw: EngineSettings.from_json(raw).make_engine().snapshot(),
        (EngineSettings.from_config(Config()).to_record().settings,),
        (ConfigError, ValueError),
    ),
    "gpuwire.answer": Parser(
        lambda raw: validate(json_and_yaml.from_json(raw, NvmlAnswer)),
        (
            NvmlAnswer(make_sample(make_view(), 1).gpus).encode(),
            NvmlAnswer.from_error(AbsentError("a"), restart_helper=True).encode(),
        ),
        (json_and_yaml.SerializationError, SourceError),
        found=(b"[[],[],false]", b"{}", b"[" * 10_000),
    ),
    "relay.answer": Parser(
        lambda raw: json_and_yaml.from_json(raw, tracker_proxy.TrackerWorkerReply),
        (b'{"taken":true,"complaint":""}',),
        (json_and_yaml.SerializationError,),
    ),
    "snapshotter.outcome": Parser(
        lambda raw: json_and_yaml.from_json(raw, examination_launcher.ProcessSnapshotOutcome),
        (b'{"path":"/a"}',),
        (json_and_yaml.SerializationError,),
    ),
    "webconfig": Parser(
        _web_config,
        (
            b"basic_auth_users: {a: $2y$10$" + b"a" * 53 + b"}\nrate_limit: {interval: 1m30s, burst: 3}\n",
            b"tls_server_config: {cert: a, key: b, min_version: TLS13}\n"
            b"http_server_config: {headers: {X-Frame-Options: deny}}",
        ),
    ),
    "access.authorization": Parser(_authorization, (b"Basic dXNlcjpwYXNzd29yZA==",)),
    "job.identify_run": Parser(
        _run_identity,
        (
            b"TORCHELASTIC_RUN_ID=7\0GROUP_WORLD_SIZE=2\0RANK=3",
            b"SLURM_JOB_ID=7\0SLURM_PROCID=1\0SLURM_NNODES=2\0SLURMD_NODENAME=a",
            b"/usr/bin/torchrun\0--nnodes=2\0--rdzv-id\0job\0train.py",
        ),
    ),
    "filesigns.names": Parser(
        _names, (b"model.pt.tmp.4711", b"ckpt-12", b"a.ckpt_b"), found=(b"checkpoint" + b"a" * 200 + b"!",)
    ),
    "filesigns.fdinfo": Parser(
        _fdinfo, (b"pos:\t4096\nflags:\t0100001\n", b"7f1c-7f2c rw-s 0 fe:00 131087 /a\n", b"PK\x03\x04a")
    ),
    "heap.census": Parser(heaps.census, heaps.seeds()),
    "heap.binary": Parser(heaps.binary, heaps.executables(), found=tuple(map(heaps.unhashed, heaps.executables()))),
    "lines.line_of": Parser(_line, (b"\x10\0\x03\xf8\x41\x02\x80\x01", b"\x10\0\x02\x06\x01\x08\xff")),
    "json_and_yaml.read_yaml": Parser(
        lambda raw: json_and_yaml.convert(json_and_yaml.read_yaml(raw, "a.yaml").data, Config),
        (b"policy: {act: true}\nlog: {presets: [a.yaml]}\n", b"a: &a [*a]\n", b"a: 1e999\n"),
    ),
    "markers": Parser(
        _log,
        (
            b"Epoch 1/5\n 10%|#  | 1/10 [00:01<00:09,  1.0s/it]\r\nMemoryError\n",
            b"{'loss': 1, 'epoch': 2}\n",
            b"7: learn: 0.2 remaining: 6m 31s\n",
        ),
    ),
    "tensorboard_events": Parser(
        _event_file, (struct.pack("<QI", 6, 0) + b"\x10\xac\x02\x2a\x01x" + bytes(4), b"\xff" * 30)
    ),
    "trace": Parser(_trace, (b"t,rss,limit,gen\n0,1,9,1\n1,2,9,2\n", b"t,rss\n0,1e999\nnan,5\n")),
    "text_and_units.parse_size": Parser(text(parse_size), (b"175GB", b"1.5 GiB"), (ValueError,)),
    "settings.parse_listen": Parser(text(parse_listen), (b"127.0.0.1:9877", b"[::1]:80"), (ValueError,)),
    "expectations.parse_expectation": Parser(
        text(parse_expectation), (b"growth < 5GB/generation", b"generations 1-3: +1..2GB each"), (ValueError,)
    ),
    "attribute_path_syntax.parse_attribute_path": Parser(
        text(attribute_path_syntax.parse_attribute_path), (b"Trainer.kept[*]['a']",)
    ),
}
