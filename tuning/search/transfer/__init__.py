"""Transfer: a search learns from other sweeps."""
