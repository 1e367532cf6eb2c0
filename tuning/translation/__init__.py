"""Sweep files written from those of other programs: `tune init --like FILE`."""
