"""`tune trial`: train one configuration without Ray, in this process or in several ranks."""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from results.own_program import ranks_command
from search_spaces.errors import UserError, suggest
from tuning.cli.formatting import echo, number
from tuning.cli.options import File, Set

_log = logging.getLogger(__name__)

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
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers", min=1, help="Ranks to start on this machine; default: this process alone."
        ),
    ] = None,
    device: Annotated[
        Literal["auto", "cpu"], typer.Option("--device", help="auto takes a GPU if there is one.")
    ] = "auto",
) -> None:
    """Train one configuration in this process, for debugging.

    It needs no Ray. Parameters without a --set are sampled from the space with the file's seed.
    With --workers, or under torchrun, ranks train together. The exit code is 1 if no report has a
    value of the metric.

    Example: tune trial search_spaces/llm.yaml --set space.learning_rate=3e-3
    """
    from search_spaces.loading.sweep_file import load_sweep
    from tuning.controller.preflight.checks import preflight
    from tuning.controller.preflight.relative_paths import data_notes, with_absolute_fixed

    in_group = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if folder is None and in_group:
        raise UserError("--folder is needed under torchrun: the ranks share the trial's folder")
    if workers is not None:
        set_ = [*set_, f"resources.workers={workers}"]
    loaded = load_sweep(file, set_)
    _prepare_torch(device, loaded.spec.resources.cpus_per_worker)
    params = preflight(loaded, files=True)[0]
    for line in () if in_group else data_notes(loaded):
        echo(line, err=True)
    with tempfile.TemporaryDirectory() as temporary:
        shared = (folder or Path(temporary)).resolve()
        if workers is None or workers == 1:
            code = _train(with_absolute_fixed(loaded), params, shared)
        else:
            code = _start_ranks(workers, file, set_, shared)
        if folder and not in_group:
            echo(f"kept in {shared}")
    raise typer.Exit(code)


def _prepare_torch(device: str, cpus: float) -> None:
    """Choose devices and threads before it is imported; more threads than a worker has wait for
    each other on busy cores.
    """
    if device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, int(cpus))))


def _train(spec: SweepSpec, params: dict[str, Any], folder: Path) -> int:
    """Train in this process; returns the exit code."""
    from results.records.trial import read_reports
    from trainables.job import Pruned
    from trainables.launch.run_trial import run_local
    from trainables.runtime.preemption import Preempted
    from trainables.user_code.command.program import CommandError
    from trainables.user_code.frames import user_traceback
    from tuning.controller.sweep_dir.create import with_new_defaults

    job, printer = _job(with_new_defaults(spec), params, folder), _Printer()
    if printer.reported is not None:
        echo(json.dumps(job.config, default=str))
        if steps := job.paths.checkpoint_steps():
            echo(f"resuming at step {steps[-1]}, in {job.folder}")
            printer.note(read_reports(job.paths))
    try:
        run_local(job, printer)
    except Pruned as e:
        echo(f"pruned: {e}")
        return 0
    except Preempted as e:
        echo(str(e), err=True)
        return 130
    except Exception as e:  # our own frames say nothing of a program, or of user code
        text = str(e) if isinstance(e, CommandError) else user_traceback(e).rstrip()
        if isinstance(e, UserError) or not text:
            raise
        _log.debug("tune trial", exc_info=True)
        echo(text, err=True)
        return 1
    if printer.reported is not None and spec.metric not in printer.reported:
        hint = suggest(spec.metric, printer.reported) if printer.reported else ""
        echo(f"no report has a value of {spec.metric}{hint}", err=True)
        return 1
    return 0


def _start_ranks(workers: int, file: Path, set_: list[str], folder: Path) -> int:
    """Train in ranks on this machine that share a folder; returns the exit code."""
    changes = [part for change in set_ for part in ("--set", change)]
    command = ["tuning", "trial", str(file), "--folder", str(folder), *changes]
    defaults = {"PYTHONUNBUFFERED": "1"} | os.environ
    return subprocess.call(ranks_command(workers, *command), env=defaults)


def _job(spec: SweepSpec, params: dict[str, Any], folder: Path) -> TrialJob:
    from results.paths import Storage
    from search_spaces.spec.layout import LayoutSpec
    from tuning.controller.resources.layouts import taken_layout
    from tuning.controller.trial_jobs import make_job

    cache = Storage(Path(spec.storage).expanduser().resolve()).cache
    own: dict[str, Any] = {"hang_timeout_s": None}  # a debugger may stop it
    own["workers"] = spec.resources.max_workers
    if (taken := taken_layout(spec, params)) is not None:
        own["layout"] = LayoutSpec.of(taken)
    config = spec.nest(params)
    return make_job(spec, folder, config, spec.seed, str(cache), trial_id="trial", **own)


class _Printer:
    """A channel that prints each report and never stops the trial.

    Attributes:
        reported: names of the metrics that had a finite value; None on ranks that do not report.
    """

    def __init__(self) -> None:
        self.reported: set[str] | None = set() if os.environ.get("RANK", "0") == "0" else None

    def report(self, report: Report) -> Answer:
        from trainables.job import Answer

        self.note([report])
        metrics = "  ".join(f"{k} {number(v)}" for k, v in report.metrics.items())
        echo(f"step {report.step}  {metrics}")
        return Answer.CONTINUE

    def note(self, reports: Iterable[Report]) -> None:
        """Remember the metrics of reports, also of those that a folder has from before."""
        if self.reported is not None:
            finite = (k for r in reports for k, v in r.metrics.items() if math.isfinite(v))
            self.reported.update(finite)
