"""The `tune` command. Imports no heavy library at module level: `tune --help` is instant."""

from tuning.cli.app import main, program

__all__ = ["main", "program"]
