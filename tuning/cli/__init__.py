"""The `tune` command. Imports no heavy library at module level: `tune --help` is instant."""

from tuning.own_packages import check_own_packages

check_own_packages()

from tuning.cli.app import main, program  # noqa: E402  # another package could be in place of ours

__all__ = ["main", "program"]
