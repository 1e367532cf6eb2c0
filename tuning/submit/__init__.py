"""Sweeps on machines that another program manages: Slurm, Kubernetes."""
