"""Commands on the models of a sweep: the group "Use" of `tune --help`."""
