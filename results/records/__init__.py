"""The records of a sweep folder: trials, reports, failures, environment, spec file."""
