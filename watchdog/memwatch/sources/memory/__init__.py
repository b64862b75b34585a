"""How much memory the trainer uses, and what limits it: its processes, its cgroups, the kernel's notifications.

Start reading in `process_tree` and `cgroup`.
"""
