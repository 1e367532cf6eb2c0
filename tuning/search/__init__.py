"""What to try next, and what to stop."""
