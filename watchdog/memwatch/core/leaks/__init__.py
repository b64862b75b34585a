"""Why memory grows: what examinations of the trainer's process found, compared over time, and the cause behind it.

Imports only the records of `core`. Start reading in `examination_history`, then `cause_rules`.
"""
