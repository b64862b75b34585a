"""Keeps runs on disk: an SQLite file with every event and sample of each run, and traces as CSV.

Imports `core`, `system` and `errors`. Start reading in `event_store` (append), then `stored_runs` (read back).
"""
