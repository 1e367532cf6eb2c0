"""What the platform costs beside the training itself, measured against its alternatives."""
