"""What trials of several sizes say of a larger one."""
