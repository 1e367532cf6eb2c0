"""How one trial trains: the trainables, the worker they see, and how they are launched."""
