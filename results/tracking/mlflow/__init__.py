"""The runs of sweeps and pipelines in MLflow."""
