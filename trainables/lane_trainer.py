"""A `TorchTrainer` that starts only what a lane needs.

Ray Train starts beside the workers of each run: an actor for Ray Data's data sets, one that frees
the placement group of a controller that was killed (by asking the State API, which only
`ray[default]` serves), and one per cluster that tells autoscalers what a run wants. Each imports
Ray Train and Ray Data before the workers' imports get a core, for nothing: lanes have no Ray Data
sets, the driver frees a lane's group itself, and autoscalers see pending placement groups.
"""

from __future__ import annotations

from typing import Any

from ray.train.torch import TorchTrainer
from ray.train.v2._internal.callbacks import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.execution.scaling_policy import FixedScalingPolicy


class LaneTrainer(TorchTrainer):
    """Ray Train's own trainer, less three actors."""

    def _create_default_callbacks(self) -> list[Any]:
        unused = (DatasetsCallback, PlacementGroupCleanerCallback)
        every = super()._create_default_callbacks()  # type: ignore[misc]  # typed as Train V1
        return [callback for callback in every if not isinstance(callback, unused)]

    def _initialize_and_run_controller(self, **given: Any) -> Any:
        given["scaling_policy"] = LaneScaling(self.scaling_config)  # type: ignore[arg-type]
        return super()._initialize_and_run_controller(**given)  # type: ignore[misc]


class LaneScaling(FixedScalingPolicy):
    """A fixed number of workers, of which no autoscaler is told beforehand."""

    def after_controller_start(self, train_run_context: Any) -> None:
        """Nothing: Ray's own starts the actor that speaks to autoscalers."""

    def _maybe_send_resource_request(self) -> None: ...
