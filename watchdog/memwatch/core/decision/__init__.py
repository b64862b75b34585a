"""What should be done: when to warn, and when to interrupt the trainer.

May import `core.forecast.outlook` and the records of `core`. Start reading in `decision_maker`, which the engine asks
at each sample, then `policy` (the user's settings and the rules) and `interrupt_rule`.
"""
