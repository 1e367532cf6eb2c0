"""The `tune` command. Imports nothing heavy: `tune --help` is instant."""

from tuning.cli.app import main

__all__ = ["main"]
