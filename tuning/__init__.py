"""Drives a sweep: the CLI, and the only place that talks to Ray Tune and Optuna."""
