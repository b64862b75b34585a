"""When to warn, and when to interrupt the trainer: by the forecast, or because memory grows too fast for one.

May import `core.forecast` and the records of `core`. Start reading in `policy` (the settings), then `interrupt_rule`.
"""
