"""What the stages of each kind do."""
