"""What `memwatch serve` shows of a whole node: how the states of all watches arrive, the page, the JSON, the metrics.

Start reading in `node_site`.
"""
