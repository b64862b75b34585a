"""Charts of a run: its data, the panels, and their drawing as SVG.

Start reading in `panels`.
"""
