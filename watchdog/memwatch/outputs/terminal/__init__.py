"""The live view, and the plain or JSON lines that are printed instead of it.

Start reading in `live_view_terminal`, then `live_view_layout`.
"""
