"""Checks of a sweep before any of its trials starts."""
