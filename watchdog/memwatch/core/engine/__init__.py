"""The live state of one watch: events in, actions and snapshots out.

May import all of `core`. Start reading in `engine` (one handler for each event), then `memory_monitor` (what follows
from a sample).
"""
