"""Lanes: long-lived groups of workers that run trial after trial."""
