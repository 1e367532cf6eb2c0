"""Data that is made on the spot, always the same for one seed or one version of Python."""
