"""`python -m tuning` is `tune`, also where Ray's own `tune` script has taken the name."""

from tuning.cli import main

main()
