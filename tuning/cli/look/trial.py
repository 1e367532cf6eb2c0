"""`tune trial`: train one configuration in this process, without Ray."""

from __future__ import annotations

import json
import math
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from search_spaces.errors import UserError, suggest
from tuning.cli.formatting import echo, number
from tuning.cli.options import File, Set

if TYPE_CHECKING:
    from results.records.trial import Report
    from search_spaces.spec.sweep import SweepSpec
    from trainables.job import Answer, TrialJob


def trial(
    file: File,
    set_: Set = [],  # noqa: B006 - typer reads the default, it is never changed
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder", help="Keep the trial here, or resume it from here; default: temporary."
        ),
    ] = None,
) -> None:
    """Train one configuration in this process, without Ray, for debugging and profiling.

    Parameters without a --set are sampled from the space with the file's seed. Under torchrun all
    ranks train together. The exit code is 1 if no report has a value of the metric.

    Example: tune trial search_spaces/llm.yaml --set space.learning_rate=3e-3
    """
    from search_spaces.loading.sweep_file import load_sweep
    from trainables.launch.run_trial import run_local
    from tuning.controller.preflight import preflight
    from tuning.controller.sweep_dir.folder import with_new_defaults

    loaded = load_sweep(file, set_)
    if folder is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("--folder is needed under torchrun: the ranks share the trial's folder")
    params = preflight(loaded, files=True)[0]
    with tempfile.TemporaryDirectory() as temporary:
        job = _job(with_new_defaults(loaded.spec), params, folder or Path(temporary))
        echo(json.dumps(job.config, default=str))
        if steps := job.paths.checkpoint_steps():
            echo(f"resuming at step {steps[-1]}, in {job.folder}")
        run_local(job, printer := _Printer())
        if folder:
            echo(f"kept in {job.folder}")
    if printer.reported is not None and loaded.spec.metric not in printer.reported:
        hint = suggest(loaded.spec.metric, printer.reported) if printer.reported else ""
        echo(f"no report has a value of {loaded.spec.metric}{hint}", err=True)
        raise typer.Exit(1)


def _job(spec: SweepSpec, params: dict[str, Any], folder: Path) -> TrialJob:
    from results.paths import Storage
    from tuning.controller.trial_jobs import make_job

    job = make_job(
        spec,
        trial_id="trial",
        folder=folder.resolve(),
        config=spec.nest(params),
        seed=spec.seed,
        attempt=1,
        cache=str(Storage(Path(spec.storage).expanduser().resolve()).cache),
    )
    # a debugger may stop it
    return replace(job, hang_timeout_s=None, workers=spec.resources.max_workers)


class _Printer:
    """A channel that prints each report and never stops the trial.

    Attributes:
        reported: names of the metrics that had a finite value; None on ranks that do not report.
    """

    def __init__(self) -> None:
        self.reported: set[str] | None = set() if os.environ.get("RANK", "0") == "0" else None

    def report(self, report: Report) -> Answer:
        from trainables.job import Answer

        if self.reported is not None:
            self.reported |= {k for k, v in report.metrics.items() if math.isfinite(v)}
        metrics = "  ".join(f"{k} {number(v)}" for k, v in report.metrics.items())
        echo(f"step {report.step}  {metrics}")
        return Answer.CONTINUE
