"""What a parameter may be, and the tree of parameters that a sweep searches."""
