"""What a sweep may use: cluster, placement, capacity, budget."""
