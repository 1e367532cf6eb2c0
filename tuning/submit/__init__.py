"""Sweeps on machines that another program manages: Kubernetes."""
