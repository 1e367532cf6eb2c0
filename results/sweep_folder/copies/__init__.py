"""Copies of a sweep's folder elsewhere: mirror, backup, restore."""
