"""Commands that run a sweep, and that reach a running one."""
