"""Functions and classes that were written for Ray Tune, as trainables."""
