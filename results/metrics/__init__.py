"""Metrics of a running sweep, for Prometheus."""
