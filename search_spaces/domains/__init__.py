"""Domains of parameters, and the tree of parameters that a sweep searches."""
