"""Runs one stage of a pipeline for the process that drives it.

`python -m tuning.cli.run.stage_process PIPELINE STAGE ADDRESS ANSWER`; see `StageProcess`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from results.records.pipeline import PipelinePaths
from search_spaces.errors import UserError
from search_spaces.pipeline.loading import load_pipeline
from tuning.cli.formatting import echo
from tuning.cli.run.run import run_and_summarize
from tuning.cli.run.signals import interrupted_by_signals
from tuning.pipelines.base import StageContext, StageStopped, run_stage


def main(paths: PipelinePaths, name: str, address: str | None) -> dict[str, Any]:
    """Run the stage; returns what it put out, or why it has not."""
    context = StageContext(load_pipeline(paths.spec), paths, address, run_and_summarize, echo)
    try:
        with interrupted_by_signals():
            return {"output": asdict(run_stage(context.pipeline.stages[name], context))}
    except StageStopped as e:
        return {"stopped": str(e), "code": e.exit_code}
    except KeyboardInterrupt:
        return {"stopped": f"stage {name} was interrupted", "code": 130}
    except UserError as e:
        return {"problems": e.problems}


def _end_with_parent() -> None:
    """End this process at once if the one that started it was killed: its end of stdin closes."""
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    os.umask(0o077)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    answer = main(PipelinePaths(Path(sys.argv[1])), sys.argv[2], sys.argv[3] or None)
    with open(int(sys.argv[4]), "w") as file:
        file.write(json.dumps(answer))
