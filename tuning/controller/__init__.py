"""Runs the trials of a sweep: trial table, queue, scheduler, failures."""
