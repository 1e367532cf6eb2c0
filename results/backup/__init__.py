"""Backups of a sweep folder: in another folder or in object storage, complete or absent."""
