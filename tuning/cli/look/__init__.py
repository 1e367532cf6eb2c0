"""Commands that look: before a sweep, and into the storage."""
