"""Runs users' Ray Train loops: each attempt has its own processes."""
