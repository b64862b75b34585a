"""The progress that the trainer's log does not tell: what the program marks itself, and what its memory says."""
