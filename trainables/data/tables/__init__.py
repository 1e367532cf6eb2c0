"""Tables with a row for each example."""
