from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwatch.core.cause_of_death import survival_reason
from memwatch.core.text_and_units import printable

TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 3, in step\n    x = torch.empty(2**40)\n'
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
OTHER = TRACEBACK + "ValueError: shapes (3,4) and (5,6) not aligned\n"
AGENT = TRACEBACK + "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
ABORT = "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n"

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
    "a message and nothing more": (f"epoch 1\nERROR {OOM}\n", f"ERROR {OOM}", 1, None),
    "with colours": (f"epoch 1\n\x1b[31mERROR\x1b[0m {OOM}\n", f"ERROR {OOM}", 1, None),
    "after a bar": (f"  3%|  | 1/40\r  5%|  | 2/40\r{TRACEBACK}{OOM}\n", OOM, 1, None),
    "bad_alloc": (ABORT, "what(): std::bad_alloc", None, "SIGABRT"),
    "bad_alloc, first line": (ABORT, ABORT.splitlines()[0], None, "SIGABRT"),
    "bad_alloc below a shell": (ABORT, "what(): std::bad_alloc", 134, None),
    "Java": ('Exception in thread "main" java.lang.OutOfMemoryError: Java heap\n\tat A.b(A.java:3)\n',
             'Exception in thread "main" java.lang.OutOfMemoryError: Java heap', 1, None),
    "no log": ("", OOM, 1, None),
}  # fmt: skip
OUTLIVED = {
    "another exception": (f"{TRACEBACK}{OOM}\nloss 0.3\n{OTHER}", OOM, 1, None, "ValueError"),
    "it says so": (f"{TRACEBACK}{OOM}\nWARNING the batch is skipped: skipping 3\n", OOM, 1, None, "skipping"),
    "it says so in the same line": ("MemoryError: retrying\n", "MemoryError: retrying", 1, None, "retrying"),
    "a message, and the log went on": (f"ERROR {OOM}\nloss 0.3\n", f"ERROR {OOM}", 1, None, "loss 0.3"),
    "its own status": (f"{TRACEBACK}{OOM}\n", OOM, 3, None, "status"),
    "aborted later": (f"{TRACEBACK}{OOM}\nloss 0.3\n", OOM, None, "SIGABRT", "aborted"),
    "aborted before": (f"{ABORT}a\nb\n{TRACEBACK}{OOM}\nloss\n", OOM, None, "SIGABRT", "aborted"),
    "long ago": ("loss 0.3\n" * 1000, OOM, 1, None, "at the end of the log"),
}


@pytest.mark.parametrize("case", DIED.values(), ids=DIED)
def test_it_may_have_died_of_it(case):
    assert survival_reason(*case) == ""


@pytest.mark.parametrize("case", OUTLIVED.values(), ids=OUTLIVED)
def test_it_outlived_it(case):
    *facts, why = case
    assert why in survival_reason(*facts)


@settings(deadline=None)
@given(st.text(max_size=300), st.text(max_size=300), st.none() | st.integers(0, 255))
def test_whatever_the_log_says_the_answer_is_a_printable_line(before, after, code):
    found = survival_reason(f"{before}\n{OOM}\n{after}", OOM, code, None)
    assert found == printable(found, 400)
