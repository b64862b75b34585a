"""The live view, and the plain or JSON lines that are printed instead of it.

Start reading in `live_view`, then `screen`.
"""
