"""One file for each class of inputs that broke something."""
