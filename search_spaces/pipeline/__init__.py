"""The pipeline file: stages, of which one begins with what another put out."""
