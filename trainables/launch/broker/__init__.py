"""The broker between the workers of a sweep and its driver, and what passes through it."""
