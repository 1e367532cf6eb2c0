"""Classes of mistakes, each with its right values."""
