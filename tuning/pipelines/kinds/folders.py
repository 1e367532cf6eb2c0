"""The stages `data` and `command`, which write into a folder of their own."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

from search_spaces.pipeline.references import OWN, with_folders
from search_spaces.pipeline.stages import CommandStage, DataStage
from tuning.pipelines.base import StageStopped, Surroundings

_LOG = "log.txt"


def make_data(stage: DataStage, around: Surroundings) -> dict[str, Any]:
    """Make the data set; returns the number of texts of each split."""
    from trainables.data.prepare import prepare

    made = prepare(stage, around.pipeline.directory, around.paths.stage(stage.name))
    texts = {name: split["texts"] for name, split in made["splits"].items()}
    out = ", ".join(f"{count} {why}" for why, count in made["left out"].items()) or "none"
    around.say(f"{', '.join(f'{n} {name}' for name, n in texts.items())} texts; left out: {out}")
    return texts


def run_command(stage: CommandStage, around: Surroundings) -> dict[str, Any]:
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
