"""The forecast of one resource: how it grows, and when it reaches its limit.

Imports only the records and statistics of `core`. Start reading in `forecaster`, which the engine asks; the rest is
behind it. The method is described in docs/forecasting.md.
"""
