"""Commands that only read: a sweep file before a run, or the folders in the storage."""
