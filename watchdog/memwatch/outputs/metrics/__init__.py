"""The Prometheus metrics: their registry (names, types, HELP), their values, their text.

Start reading in `metric_registry`.
"""
