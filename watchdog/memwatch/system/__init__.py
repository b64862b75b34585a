"""What memwatch needs of the operating system and of Python: clock, child processes, files, priorities, serialization.

Imports `core` and `errors` only. Start reading in `python_workers`.
"""
