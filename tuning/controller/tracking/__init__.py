"""Tracks a running sweep in MLflow, from a process of its own."""
