"""The forecast of one resource: how it grows, and when it reaches its limit.

Start reading in `outlook` (what a forecast says, and what may be asked of a forecaster), then `forecaster`, which makes
it: the rest of memwatch imports these two alone. The method is described in docs/forecasting.md.
"""
