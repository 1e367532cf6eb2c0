"""Checkpoints on disk and in object storage: commit, verification, retention, cleanup."""
