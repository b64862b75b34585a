"""Checkpoints as the file system shows them: a file that is being written, and one that is complete.

Start reading in `checkpoint_watch`.
"""
