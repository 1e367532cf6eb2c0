"""Loops that were written for Ray Train."""
