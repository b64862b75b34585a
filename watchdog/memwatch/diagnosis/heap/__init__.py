"""The heap of a running CPython, read through /proc/PID/mem without stopping it.

Start reading in `object_census` (counts and sizes), then `reference_paths` (what holds the objects); at the bottom are
`remote_memory` and `cpython_runtime`.
"""
