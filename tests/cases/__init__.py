"""A test file for each class of inputs that were read, recorded or shown wrongly."""
