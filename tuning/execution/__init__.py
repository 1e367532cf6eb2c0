"""Runs the trials of a sweep on a Ray cluster, and keeps its books."""
