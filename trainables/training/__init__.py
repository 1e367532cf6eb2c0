"""The training loop of all trainables with a `Task`, and its parts."""
