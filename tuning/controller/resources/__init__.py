"""The resources of a sweep: cluster, placement of trials, capacity, budget, forecast."""
