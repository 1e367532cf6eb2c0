"""Checkpoints on disk and in object storage: written whole, verified, kept, removed."""
