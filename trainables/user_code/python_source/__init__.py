"""Reads users' Python files; nothing is imported or run."""
