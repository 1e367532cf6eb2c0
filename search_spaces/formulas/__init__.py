"""Relations between parameters: computed values, constraints, points to evaluate first."""
