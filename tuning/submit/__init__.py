"""Sweeps on machines that another program manages: Slurm, Ray Jobs, Kubernetes."""
