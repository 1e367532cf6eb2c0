"""Reads data: rows of files, splits by digest, and folders that all trials of a machine share."""
