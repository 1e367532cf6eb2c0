"""Reads a sweep file into a validated spec with line numbers, and writes it back."""
