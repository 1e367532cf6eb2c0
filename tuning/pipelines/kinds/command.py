"""The stage `command`: a program that runs in a folder of its own."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

from search_spaces.pipeline.references import OWN, with_folders
from search_spaces.pipeline.stages import CommandStage
from tuning.pipelines.base import StageStopped, Surroundings

_LOG = "log.txt"


def run(stage: CommandStage, around: Surroundings) -> dict[str, Any]:
    """Run the program from the beginning, in the pipeline's directory; returns its log."""
    folder = around.paths.stage(stage.name)
    shutil.rmtree(folder, ignore_errors=True)  # what a run that was killed left
    folder.mkdir(parents=True)
    command = with_folders(stage.command, {**around.folders, OWN: str(folder)})
    log = folder / _LOG
    with open(log, "wb") as output:
        try:
            code = subprocess.run(
                command,
                cwd=around.pipeline.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
        except OSError as e:
            raise StageStopped(f"stage {stage.name}: {command[0]}: {e.strerror}", 2) from e
    if code:
        raise StageStopped(f"stage {stage.name}: exit code {code}; log {log}", 1)
    return {"log": str(log)}
