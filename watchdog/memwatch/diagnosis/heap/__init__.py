"""Single objects of the heap of a running CPython, read through /proc/PID/mem without stopping it.

Start reading in `named_objects` (what the program's own names lead to); at the bottom are `remote_memory` and
`cpython_runtime`.
"""
