"""Which process is watched: found by PID, name, unit or cgroup, and identified so that a reused PID is noticed.

Start reading in `find_process`.
"""
