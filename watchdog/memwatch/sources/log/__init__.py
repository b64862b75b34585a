"""The trainer's log: its end is followed, generations, totals, gauges and checkpoints are parsed from its lines.

Start reading in `log_source`, then `marker_parser`; `line_text` takes off what others put around a line,
`marker_rule_matcher` applies the presets, `counter_finder` finds the counter in a log that no preset knows.
"""
