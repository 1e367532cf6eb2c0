"""Commands for sweeps on other machines and in other places: the group "Elsewhere"."""
