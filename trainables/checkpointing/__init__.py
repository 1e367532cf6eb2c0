"""Copies a trial's state, writes it, uploads it and reads it back."""
