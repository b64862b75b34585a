"""The Prometheus metrics: their registry (names, types, HELP), their values and text.

Start reading in `metric_registry`.
"""
