"""Runs one stage of a pipeline for the process that drives it.

`python -m tuning.cli.run.stage_process PIPELINE STAGE ADDRESS ANSWER`; see `StageProcess`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from results.records.pipeline import PipelinePaths, read_stages
from search_spaces.errors import UserError
from search_spaces.pipeline.loading import load_pipeline
from tuning.cli.formatting import echo
from tuning.cli.run.run import drive
from tuning.cli.run.signals import interrupted_by_signals
from tuning.pipelines.base import StageStopped, Surroundings, run_stage


def main(paths: PipelinePaths, name: str, address: str | None) -> dict[str, Any]:
    """Run the stage; returns what it put out, or why it has not."""
    pipeline = load_pipeline(paths.spec)
    results = {other: record.result for other, record in read_stages(paths).stages.items()}
    around = Surroundings(pipeline, paths, results, address, drive, echo)
    try:
        with interrupted_by_signals():
            return {"result": run_stage(pipeline.stages[name], around)}
    except StageStopped as e:
        return {"stopped": str(e), "code": e.exit_code}
    except KeyboardInterrupt:
        return {"stopped": f"stage {name} was interrupted", "code": 130}
    except UserError as e:
        return {"problems": e.problems}


def _end_with_parent() -> None:
    """End this process at once if the one that started it was killed: its end of stdin closes."""

    def wait() -> None:
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    os.umask(0o077)
    _end_with_parent()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    found = main(PipelinePaths(Path(sys.argv[1])), sys.argv[2], sys.argv[3] or None)
    with open(int(sys.argv[4]), "w") as answer:
        answer.write(json.dumps(found))
