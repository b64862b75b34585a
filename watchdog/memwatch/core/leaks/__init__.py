"""Why memory grows: compares examinations of the trainer's process over time and names the causes.

Imports only the records of `core`. Start reading in `examination_history`, then `leak_cause_rules`.
"""
