"""Everything that knows the inside of Ray Tune."""
