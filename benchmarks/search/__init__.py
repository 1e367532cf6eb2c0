"""Compares searchers and schedulers with those of other projects, in simulated time."""
