"""Everything that knows the inside of Ray: its cluster, and Ray Tune."""
