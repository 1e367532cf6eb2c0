"""One file for each class of mistakes that inputs of other people have shown."""
