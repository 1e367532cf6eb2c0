"""Commands that show sweeps, while they run and afterwards: the group "Look" of `tune --help`."""
