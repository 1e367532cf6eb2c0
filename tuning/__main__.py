"""`python -m tuning` runs `tune`, also if Ray's script of the same name comes first in PATH."""

from tuning.cli import program

program()
