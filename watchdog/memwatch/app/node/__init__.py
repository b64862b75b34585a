"""`memwatch serve` for a whole node: a supervisor, a watcher process for each trainer, one process that answers HTTP.

The supervisor has loaded everything and forks the others, so that they share its memory. Start reading in
`node_service`.
"""
