"""Prepares data sets: cleaned text, split once for all that train on it."""
