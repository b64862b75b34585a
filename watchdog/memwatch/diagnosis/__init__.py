"""Reads the trainer's own process from outside: stacks, running code, and the Python heap.

Imports `core` and `errors` only; runs in short-lived child processes (`app.examination_worker`). Start reading in
`heap.object_census`.
"""
