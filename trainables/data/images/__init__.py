"""Labelled images, decoded once."""
