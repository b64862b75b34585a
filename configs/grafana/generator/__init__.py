"""Grafana dashboards from the registry of metrics: `make dashboards` writes configs/grafana/dashboards/*.json."""
