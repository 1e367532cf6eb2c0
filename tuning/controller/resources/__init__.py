"""The resources of a sweep: placement of trials, capacity, budget, forecast."""
