"""A data stage of a pipeline: cleaned text, split once for all that train on it."""
