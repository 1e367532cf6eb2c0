"""Parts of training loops that several trainables share."""
