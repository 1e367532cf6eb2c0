"""The stages `data` and `command`, which write into a folder of their own."""

from __future__ import annotations

import os
import shutil
from contextlib import closing

from search_spaces.errors import UserError
from search_spaces.pipeline.references import OWN, with_folders
from search_spaces.pipeline.stages import CommandStage, DataStage
from trainables.launch.run_trial import output_to
from trainables.user_code.command.program import Program
from tuning.pipelines.base import StageContext, StageOutput, StageStopped

_LOG, _POLL_S = "log.txt", 60.0


def make_data(stage: DataStage, context: StageContext) -> StageOutput:
    """Make the data set; returns the number of texts of each split."""
    from trainables.data.stage.prepare import prepare

    folder, cache = context.paths.stage(stage.name), context.paths.stages.cache
    made = prepare(stage, context.pipeline.directory, folder, cache)
    texts = {name: split["texts"] for name, split in made["splits"].items()}
    out = ", ".join(f"{count} {why}" for why, count in made["left out"].items()) or "none"
    context.notify(
        f"{', '.join(f'{n} {name}' for name, n in texts.items())} texts; left out: {out}"
    )
    return StageOutput(texts)


def run_command(stage: CommandStage, context: StageContext) -> StageOutput:
    """Run the program from the beginning, in the pipeline's directory; returns its log.

    All its processes end with this one, however that ends.
    """
    folder = context.paths.stage(stage.name)
    shutil.rmtree(folder, ignore_errors=True)  # what a run that was killed left
    folder.mkdir(parents=True)
    argv = with_folders(stage.command, {**context.folders, OWN: str(folder)})
    log = folder / _LOG
    try:
        with output_to(log):
            program = Program(argv, context.pipeline.directory, os.environ)
            with closing(program):
                while program.exit_code is None:
                    program.wait(_POLL_S)
    except UserError as e:
        raise StageStopped(f"stage {stage.name}: {e}", e.exit_code) from e
    if reason := program.failure():
        raise StageStopped(f"stage {stage.name}: {reason}; log {log}", 1)
    return StageOutput({"log": str(log)})
