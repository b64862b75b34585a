from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwatch.core.cause_of_death import ExitEvidence, explain_exit, last_lines, survival_reason
from memwatch.core.events import OutOfMemorySeen
from memwatch.core.text_and_units import printable

TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 3, in step\n    x = torch.empty(2**40)\n'
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
OTHER = TRACEBACK + "ValueError: shapes (3,4) and (5,6) not aligned\n"
AGENT = TRACEBACK + "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
ABORT = "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n"

PADDLE = "Out of memory error on GPU 0. Cannot allocate 25.0MB memory on GPU 0, available memory is only 2.3MB."
GLOG = "F0309 09:35:43.096343 15777 fusion.hpp:356] Check failed: error == cudaSuccess (2 vs. 0) out of memory"
CUDA = "CUDA error 2 'out of memory' - device.cu:32"

DIED = {
    "a traceback": (f"epoch 1\n{TRACEBACK}{OOM}\n", OOM, 1, None),
    "status unknown": (f"{TRACEBACK}{OOM}\n", OOM, None, None),
    "a rank of torchrun": (
        "".join(f"[rank0]: {one}\n" for one in f"{TRACEBACK}{OOM}".splitlines()) + AGENT, OOM, 1, None
    ),
    "which led to another": (
        f"{TRACEBACK}{OOM}\n\nDuring handling of the above exception, another exception occurred:\n\n{OTHER}",
        *(OOM, 1, None),
    ),
    "and the interpreter shut down": (
        f"{TRACEBACK}{OOM}\nException ignored in: <function Pool.__del__ at 0x7f>\n{OTHER}", OOM, 1, None
    ),
    "what a tracker prints at the end": (f"{TRACEBACK}{OOM}\nwandb: Find logs at: ./wandb\n", OOM, 1, None),
    "a traceback whose beginning is gone": (
        f"{TRACEBACK.partition(chr(10))[2]}{OOM}\nwandb: 0.028 MB of 0.028 MB uploaded\n", OOM, 1, None
    ),
    "a message and nothing more": (f"epoch 1\nERROR {OOM}\n", f"ERROR {OOM}", 1, None),
    "with colours": (f"epoch 1\n\x1b[31mERROR\x1b[0m {OOM}\n", f"ERROR {OOM}", 1, None),
    "after a bar": (f"  3%|  | 1/40\r  5%|  | 2/40\r{TRACEBACK}{OOM}\n", OOM, 1, None),
    "bad_alloc": (ABORT, "what(): std::bad_alloc", None, "SIGABRT"),
    "bad_alloc, first line": (ABORT, ABORT.splitlines()[0], None, "SIGABRT"),
    "Rust": ("memory allocation of 64 bytes failed\n", "memory allocation of 64 bytes failed", None, "SIGABRT"),
    "bad_alloc below a shell": (ABORT, "what(): std::bad_alloc", 134, None),
    "Java": ('Exception in thread "main" java.lang.OutOfMemoryError: Java heap\n\tat A.b(A.java:3)\n',
             'Exception in thread "main" java.lang.OutOfMemoryError: Java heap', 1, None),
    "Go": ("fatal error: runtime: out of memory\n\nruntime stack:\nruntime.throw(0xaf7e25)\n\ta.go:617\n",
           "fatal error: runtime: out of memory", 2, None),
    "Julia": ("ERROR: LoadError: OutOfMemoryError()\nStacktrace:\n [1] Type at ./boot.jl:396\nin expression at a.jl\n",
              "ERROR: LoadError: OutOfMemoryError()", 1, None),
    "no log": ("", OOM, 1, None),
    "advice after it": (f"RuntimeError: {PADDLE}\n\nPlease check what uses GPU 0.\n1. If yes, stop it.\n",
                        f"RuntimeError: {PADDLE}", 1, None),
    "R": ("Error: cannot allocate vector of size 4.1 Gb\nExecution halted\n",
          "Error: cannot allocate vector of size 4.1 Gb", 1, None),
    "what a launcher says of its end": (
        f"RuntimeError: {CUDA}\nTraining failed with exit code 1\nLog file: output/run.log\n",
        f"RuntimeError: {CUDA}", 1, None),
    "R, a call's error": (
        "Error in asMethod(x) :\n  Cholmod error 'out of memory' at a.c, line 1\nCalls: f -> g\nExecution halted\n",
        "Cholmod error 'out of memory' at a.c, line 1", 1, None),
    "glog": (f"{GLOG}\n*** Check failure stack trace: ***\n    @     0x7fe8e528c433  google::Flush()\n", GLOG, None,
             "SIGABRT"),
    "its own message, then an abort": (
        f"[08:34:14] Error: {CUDA}\n[08:34:14] Error: Aborted from virtual void Device::reserve(size_t)\n",
        *(f"[08:34:14] Error: {CUDA}", None, "SIGABRT"),
    ),
    "an uncaught exception of its own": (
        f"uncaught exception:\n    what() -> {CUDA}\n    type -> TOutOfMemoryError\n", f"what() -> {CUDA}", 134, None
    ),
    "NCCL's stack": (f"[1] NCCL WARN {CUDA}\n[1] NCCL INFO include/shm.h:41 -> 2\n", f"NCCL WARN {CUDA}", 1, None),
    "Julia's account of memory": (
        f"ERROR: {CUDA}\nEffective GPU memory usage: 100.00%\nMemory pool usage: 15 GiB\nStacktrace:\n  [1] alloc\n",
        *(f"ERROR: {CUDA}", 1, None),
    ),
    "MATLAB's stack": (
        f"Error using gpuArray/max\n{CUDA} on device. If\nthe problem persists, reset the GPU.\n\n"
        "Error in processEpoch (line 228)\nnet.eval(inputs, params)\n\nError in train (line 66)\n[net] = run(net)\n",
        *(f"{CUDA} on device. If", 1, None),
    ),
    "a shell reports it": (f"{ABORT}a.sh: line 34:  4482 Aborted                 (core dumped) ./skip -epoch 1\n",
                           "what(): std::bad_alloc", 134, None),
    "its launcher ended the others": (f"{TRACEBACK}{OOM}\n>> Shutting down trainer...\nzsh: terminated  ./run.sh\n",
                                      OOM, None, "SIGTERM"),
    "a Fortran runtime, whose status is the number of the error": (
        "Time Step: 33600\nforrtl: severe (41): insufficient virtual memory\nImage            PC\nfds5.exe 0068458A\n",
        *("forrtl: severe (41): insufficient virtual memory", 41, None),
    ),
}  # fmt: skip
OUTLIVED = {
    "another exception": (f"{TRACEBACK}{OOM}\nloss 0.3\n{OTHER}", OOM, 1, None, "ValueError"),
    "it says so": (f"{TRACEBACK}{OOM}\nWARNING the batch is skipped: skipping 3\n", OOM, 1, None, "skipping"),
    "it says so in the same line": ("MemoryError: retrying\n", "MemoryError: retrying", 1, None, "retrying"),
    "a message, and the log went on": (f"ERROR {OOM}\nloss 0.3\n", f"ERROR {OOM}", 1, None, "loss 0.3"),
    "its own status": (f"{TRACEBACK}{OOM}\n", OOM, 3, None, "status"),
    "aborted later": (f"{TRACEBACK}{OOM}\nloss 0.3\n", OOM, None, "SIGABRT", "loss 0.3"),
    "aborted before": (f"{ABORT}a\nb\n{TRACEBACK}{OOM}\nloss\n", OOM, None, "SIGABRT", "loss"),
    "terminated later": (
        f"{TRACEBACK}{OOM}\nWARNING the batch is skipped\nloss 0.3\n",
        OOM,
        None,
        "SIGTERM",
        "skipped",
    ),
    "aborted for another reason": (
        f"ERROR {OOM}\nfree(): invalid pointer\n",
        f"ERROR {OOM}",
        None,
        "SIGABRT",
        "invalid pointer",
    ),
    "long ago": ("loss 0.3\n" * 1000, OOM, 1, None, "at the end of the log"),
}


RAY = "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."
LOKY = "joblib.externals.loky.process_executor.TerminatedWorkerError: A worker process managed by the executor was"
TF = "OOM when allocating tensor with shape[8192,8192] on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu"
GRAPH = (
    f"{TRACEBACK}tensorflow.ResourceExhaustedError: Graph execution error:\n\n{TF}\n\t [[{{{{node a}}}}]]\nHint: see\n"
)
MONITORED = {
    "a task of Ray's": (f"{TRACEBACK}{RAY}\nMemory on the node was 15.2 GB\nTop 3 memory users:\n", RAY, 1, None),
    "the processes of a job": (
        "Job 104 has exceeded memory allocation on n1\n" + 'Process "python", pid 4039488, rss 5211, vmem 7325\n' * 40,
        *("Job 104 has exceeded memory allocation on n1", None, "SIGKILL"),
    ),
    "what other ranks print then": (
        "under_oom detected for 5 seconds.\nn1: rank 19 died from signal 9\n" + "a.out 0018B Unknown Unknown\n" * 40,
        *("under_oom detected for 5 seconds.", None, "SIGKILL"),
    ),
    "a driver that ended by a signal": (f"{RAY}\nray::train()\n", RAY, None, "SIGKILL"),
    "its own status": (f"{RAY}\nray::train()\n", RAY, 17, None),
    "advice after it": (
        f"{RAY}\nSet max_restarts and max_task_retries to enable retry when it crashes.\n",
        RAY,
        1,
        None,
    ),
}
KILLED_AND_WENT_ON = {
    "it tried again": (f"{RAY}\nretrying the task\n", RAY, 1, None, "retrying"),
    "another exception": (f"{RAY}\nloss 0.3\n{OTHER}", RAY, 1, None, "ValueError"),
    "a signal long after": (RAY + "\n" + "loss 0.3\n" * 100, RAY, None, "SIGKILL", "nothing in the log"),
}


def seen(line, kind="MemoryError"):
    return OutOfMemorySeen(1.0, kind, line)


@pytest.mark.parametrize("case", MONITORED.values(), ids=MONITORED)
def test_a_memory_monitor_killed_it(case):
    log, line, *end = case
    assert survival_reason(log, seen(line, "killed by a memory monitor"), *end) == ""


@pytest.mark.parametrize("case", KILLED_AND_WENT_ON.values(), ids=KILLED_AND_WENT_ON)
def test_a_memory_monitor_killed_a_part_and_the_program_went_on(case):
    log, line, *end, why = case
    assert why in survival_reason(log, seen(line, "killed by a memory monitor"), *end)


def test_a_killed_worker_ends_the_program_with_whatever_status():
    assert survival_reason(f"{TRACEBACK}{LOKY}\n", seen(LOKY, "worker killed"), 3, None) == ""


def test_a_worker_that_a_bus_error_ended_ends_the_program_by_the_exception_of_its_reader():
    line = "ERROR: Unexpected BUS error encountered in DataLoader worker. This might be caused by insufficient memory"
    reader = f"Exception in thread Thread-31:\n{TRACEBACK}_queue.Empty\n\nDuring handling of the above exception, "
    log = f"{line}\n{reader}another exception occurred:\n\n{TRACEBACK}RuntimeError: DataLoader worker exited\n"
    assert survival_reason(log, seen(line, "shared memory full"), 1, None) == ""
    went_on = f"{log}retrying with num_workers=0\n"
    assert "retrying" in survival_reason(went_on, seen(line, "shared memory full"), 1, None)


def test_the_line_may_stand_in_the_message_of_the_exception():
    assert survival_reason(GRAPH, seen(TF), 1, None) == ""


def test_a_rank_s_prefix_may_stand_before_the_line_too():
    log = "".join(f"[rank0]: {one}\n" for one in f"{TRACEBACK}{OOM}".splitlines())
    assert survival_reason(log, seen(f"[rank0]: {OOM}"), 1, None) == ""


def test_the_last_line_is_the_last_with_text():
    assert last_lines("a\n  b \x1b[31mred\n  \n\r\n") == ("a", "  b red")
    assert last_lines(" \n") == ()
    assert last_lines("10%\r20%\r30%\r\nend\x00\r") == ("30%", "end?"), "of a bar how it was last"
    assert last_lines("\n".join(map(str, range(99))))[0] == "87"


@pytest.mark.parametrize("case", DIED.values(), ids=DIED)
def test_it_may_have_died_of_it(case):
    log, line, *end = case
    assert survival_reason(log, seen(line), *end) == ""


@pytest.mark.parametrize("case", OUTLIVED.values(), ids=OUTLIVED)
def test_it_outlived_it(case):
    log, line, *end, why = case
    assert why in survival_reason(log, seen(line), *end)


@settings(deadline=None)
@given(st.text(max_size=300), st.text(max_size=300), st.none() | st.integers(0, 255))
def test_whatever_the_log_says_the_answer_is_a_printable_line(before, after, code):
    found = survival_reason(f"{before}\n{OOM}\n{after}", seen(OOM), code, None)
    assert found == printable(found, 400)


def test_the_last_error_is_told_where_the_last_line_says_nothing():
    tail = ("OSError: [Errno 24] Too many open files", "main proc 55459 exit")
    end = explain_exit(1.0, ExitEvidence(exit_code=1, log_tail=tail))
    assert end.evidence[-2:] == (f"the log's last error: {tail[0]}", f"the log's last line: {tail[1]}")


def test_an_indented_line_is_part_of_the_error_above_it():
    error = "_pickle.UnpicklingError: Weights only load failed. There are two options."
    tail = (error, " WeightsUnpickler error: unsupported global", "See the documentation.")
    assert f"the log's last error: {error}" in explain_exit(1.0, ExitEvidence(exit_code=1, log_tail=tail)).evidence
    assert (
        f"the log's last error: {tail[1].strip()}"
        in explain_exit(1.0, ExitEvidence(exit_code=1, log_tail=tail[1:])).evidence
    )
