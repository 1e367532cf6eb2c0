"""Sweeps from Python: `tuning.Sweep` and what it takes. The counterpart of the command line."""
