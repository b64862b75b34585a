"""Weights & Biases, TensorBoard and messages to people, each fed by a process of its own.

Start reading in `tracker_proxy` (memwatch's side), then `tracker_worker` (the other process).
"""
