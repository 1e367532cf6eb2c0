"""What the records say: trials in order, the winner, several sweeps side by side."""
