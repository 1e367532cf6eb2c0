"""Runs stages: which, when, in which process, and with what is left of the budget."""
