"""Objectives that were written for Optuna, as trainables."""
