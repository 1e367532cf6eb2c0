"""Surrogate models of the objective."""
