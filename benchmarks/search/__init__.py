"""Searchers and schedulers in simulated time, beside those of other projects."""
