"""The running program: `composition` builds a watch from a configuration, `watch_loop` drives it.

Here the pure engine meets sources, outputs, history and actions. Imports everything but `cli`. Start reading in
`composition`, then `watch_loop`; `serve_one_at_a_time` and `cli.run` chain several watches.
"""
