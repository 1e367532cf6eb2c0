"""What a search learns from other sweeps."""
