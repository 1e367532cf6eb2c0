"""Training code of users: found, loaded, and its checkpoints verified."""
