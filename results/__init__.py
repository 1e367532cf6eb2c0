"""What comes out of a sweep: records, checkpoints, comparison, averaging, export. No Ray."""
