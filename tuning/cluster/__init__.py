"""Ray's own processes: a cluster on this machine or another, and drivers that are ready."""
