"""Commands that run a sweep, control a running one, or transfer its data."""
