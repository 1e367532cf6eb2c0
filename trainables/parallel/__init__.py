"""How the ranks of a trial share a model."""
