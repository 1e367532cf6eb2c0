"""MLflow: a parent run per sweep and a child run per trial, copied from the sweep folder.

This is the only package that talks to MLflow. The sweep folder is the record: what was not
delivered yet is delivered later, once.
"""

from results.tracking.delivery import Delivery, mlflow_tracker
from results.tracking.mlflow.client import import_mlflow
from results.tracking.mlflow.pages import (
    comparison_url,
    curves_url,
    experiment_url,
    ui_command,
    ui_environment,
)
from results.tracking.tracker import Ending, PipelineFacts, SweepFacts, Tracker

__all__ = [
    "Delivery",
    "Ending",
    "PipelineFacts",
    "SweepFacts",
    "Tracker",
    "comparison_url",
    "curves_url",
    "experiment_url",
    "import_mlflow",
    "mlflow_tracker",
    "ui_command",
    "ui_environment",
]
