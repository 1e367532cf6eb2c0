"""Classes of inputs and faults that once went wrong: one file a class."""
