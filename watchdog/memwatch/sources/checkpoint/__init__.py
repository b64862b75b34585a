"""Finds checkpoints in the file system: files that are being written, and complete ones.

Start reading in `checkpoint_watch`.
"""
