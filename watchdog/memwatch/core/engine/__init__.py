"""The live state of one watch: it turns events into actions and snapshots.

May import all of `core`. Start reading in `engine` (one handler for each event), then `memory_monitor` (the processing
of a sample).
"""
