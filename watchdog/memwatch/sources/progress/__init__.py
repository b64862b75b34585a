"""How far the trainer is, where its log does not tell: what the program marks itself, and what counts in its memory.

Start reading in `clocks`, which makes one clock of these and the log.
"""
