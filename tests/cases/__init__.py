"""What others' reports, files and machines broke: one module for each class of input."""
