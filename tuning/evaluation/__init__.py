"""Trained models evaluated again: retrained, confirmed, reproduced, tested."""
