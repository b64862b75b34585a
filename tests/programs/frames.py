"""What frames.py of the tests expects: two threads in known lines, one in a call, one that computes.

With "lines" as its argument, all instructions of much code and their lines, as the interpreter itself tells them.
"""

import dis
import json
import sys
import threading
import time
import types


class Loader:
    def wait(self):
        time.sleep(
            60,
        )


def batches():
    loader = Loader()
    yield from (loader.wait() for _ in range(2))


def load():
    for _ in batches():
        pass


def spin():
    count = 0
    while True:
        count += 1


def codes(module):
    found = [value.__code__ for value in vars(module).values() if isinstance(value, types.FunctionType)]
    while found:
        code = found.pop()
        found += [const for const in code.co_consts if isinstance(const, types.CodeType)]
        yield code


def lines(code):
    """The line of each instruction that has one."""
    if hasattr(code, "co_positions"):
        every = [position[0] for position in code.co_positions()]
        return [(2 * i, line) for i, line in enumerate(every) if line is not None]
    starts = dict(dis.findlinestarts(code))
    found, line = [], None
    for offset in range(0, len(code.co_code), 2):
        line = starts.get(offset, line)
        if line is not None:
            found.append((offset, line))
    return found


def table(code):
    return code.co_lnotab if sys.version_info < (3, 10) else code.co_linetable


if sys.argv[1:] == ["lines"]:
    import argparse
    import asyncio.base_events
    import subprocess

    shown = [
        [table(code).hex(), code.co_firstlineno, lines(code)]
        for module in (argparse, asyncio.base_events, subprocess)
        for code in codes(module)
    ]
    print(json.dumps(shown), flush=True)
else:
    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    print(thread.ident if not hasattr(thread, "native_id") else thread.native_id, flush=True)
    spin()
