"""What a stage of any kind is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from results.models.ref import ModelRef
from results.models.stages import StageRecord, read_stages
from results.records.pipeline import PipelinePaths
from results.storage.fencing import UNFENCED, Fence
from search_spaces.pipeline.loading import LoadedPipeline
from search_spaces.pipeline.stages import Stage

if TYPE_CHECKING:
    from tuning.controller.sweep import SweepController

Session = Callable[..., "SweepController"]
"""Runs a session of a sweep; takes the keywords `observers` and `interrupt`."""
RunSession = Callable[[Session], "SweepController"]
"""Calls a session with what shows and interrupts it."""
Notify = Callable[[str], None]
"""Shows a line."""

KINDS: dict[str, str] = {
    "data": "tuning.pipelines.kinds.folders:make_data",
    "train": "tuning.pipelines.kinds.train:run",
    "average": "tuning.pipelines.kinds.models:average",
    "confirm": "tuning.pipelines.kinds.models:confirm",
    "export": "tuning.pipelines.kinds.models:export",
    "evaluate": "tuning.pipelines.kinds.models:evaluate",
    "command": "tuning.pipelines.kinds.folders:run_command",
}
"""Kind of stage → `module:function`, which takes the stage and its context and returns its output.
A function that is killed is called again."""

CONFIRMS = "of"
"""In the result of a stage that decides the winner of a sweep: the stage of that sweep."""


class StageStopped(Exception):
    """A stage ended before it was complete.

    Args:
        exit_code: of the program.
    """

    def __init__(self, reason: str, exit_code: int) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


@dataclass(frozen=True)
class StageOutput:
    """What a stage put out: words and numbers as plain data, and models."""

    result: Mapping[str, Any]
    models: tuple[ModelRef, ...] = ()


@dataclass(frozen=True)
class StageContext:
    """The pipeline around a stage.

    Attributes:
        pipeline, paths: the pipeline and its folder.
        address: of the Ray cluster; None starts one on this machine.
        run_session: runs a session of a sweep.
        notify: shows a line.
        is_resumed: whether stages that have begun stay, although their code or data have changed.
        fence: checked before the records of the stages are written.
    """

    pipeline: LoadedPipeline
    paths: PipelinePaths
    address: str | None = None
    run_session: RunSession = lambda session: session()
    notify: Notify = lambda line: None
    is_resumed: bool = False
    fence: Fence = UNFENCED

    @property
    def records(self) -> Mapping[str, StageRecord]:
        """The stages that have begun, by name."""
        return read_stages(self.paths).stages

    @property
    def folders(self) -> dict[str, str]:
        """The folder of each stage."""
        return {name: str(self.paths.stage(name)) for name in self.pipeline.stages}


def run_stage(stage: Stage, context: StageContext) -> StageOutput:
    """Run a stage, or go on with it.

    Raises:
        UserError: the stage cannot be run.
        StageStopped: it was interrupted, or has no result.
    """
    output: StageOutput = resolve_name(KINDS[stage.kind])(stage, context)
    return output
