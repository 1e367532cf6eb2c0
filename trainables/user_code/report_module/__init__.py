"""Folder of `tune_report`, a module for the programs of a `command`; it needs nothing else."""
