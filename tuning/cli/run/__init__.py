"""Commands that check, run and change a sweep: the group "Run" of `tune --help`."""
