"""Pipelines: stages of sweeps, each of which begins with what another put out."""
