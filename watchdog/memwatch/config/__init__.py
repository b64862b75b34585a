"""The configuration: which keys there are, where their values come from, and whether they make sense together.

May import outputs, history, sources and what lies below them, but not `app` or `cli`. Start reading in `settings` (the
keys), then `load` (profile, file, environment, flags).
"""
