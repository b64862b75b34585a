"""What people and programs see: metrics, HTTP, terminal, reports, charts, trackers, systemd.

Everything is made from the one `Snapshot` or from a run of the history. Imports `core`, `system` and `errors`.
Start reading in `status_json`, the plainest output.
"""
