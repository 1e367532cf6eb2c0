"""Commands for sweeps on machines that another program manages."""
