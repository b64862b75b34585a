"""The world as events: the kernel's files, NVML, the trainer's log and its checkpoint files.

Imports `core`, `errors` and `system`; never outputs or history. Each file of the kernel has a pure parser beside the
code that reads it. Start reading in `procfs`, which shows the pattern.
"""
