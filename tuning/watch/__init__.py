"""Follows a sweep that another process drives, and starts such processes."""
