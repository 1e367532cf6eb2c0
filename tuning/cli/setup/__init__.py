"""Commands before the first sweep: the group "Set up" of `tune --help`."""
