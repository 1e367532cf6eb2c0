"""A pipeline with a stage of every kind, whose models train in this process, without Ray."""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from results.records.pipeline import PipelinePaths
from results.records.spec_file import read_spec
from results.storage.fault_injection import VARIABLE
from tests.threads import one_thread
from tests.tuning.trained import train_all
from tuning import api
from tuning.controller.session import asked_session
from tuning.controller.sweep import SweepController
from tuning.pipelines.run import resume_pipeline, run_pipeline
from tuning.pipelines.selection import StageSelection

SWEEP = """
      metric: eval_loss
      search: {name: random}
      scheduler: {name: none}
      budget: {trials: 2}
      resources: {workers: 1}
      checkpoint: {every: 2}
"""
FILE = f"""
name: small
stages:
  - {{name: data, kind: data, source: stories, stories: 300, near_duplicates: null, workers: 1,
     keep_if: "keep.py:keep"}}
  - name: pretrain
    kind: train
    sweep:{SWEEP}
      trainable: causal_lm
      space: {{learning_rate: {{loguniform: [1.0e-3, 3.0e-2]}}}}
      fixed: {{hidden_size: 32, vocab_size: 300, sequence_length: 192, max_steps: 4, batch_size: 4,
              weight_decay: 0.3, eval_every: 2, eval_sequences: 8,
              data: {{source: files, paths: "{{data}}/text/*.jsonl", splits: file_names}}}}
  - {{name: confirmed, kind: confirm, of: pretrain, top: 2, seeds: 1}}
  - {{name: averaged, kind: average, of: pretrain, top: 2, method: uniform}}
  - {{name: scores, kind: evaluate, model: pretrain.winner}}
  - name: later
    kind: train
    init: pretrain.top(2)
    tie: {{learning_rate: pretrain.learning_rate}}
    sweep:{SWEEP}
      trainable: causal_lm
      space: {{grad_clip: {{uniform: [0.5, 1]}}}}
      fixed: {{sequence_length: 192, max_steps: 2, eval_every: 2, batch_size: 4, eval_sequences: 8,
              data: {{source: files, paths: "{{data}}/text/*.jsonl", splits: file_names}}}}
  - name: sft
    kind: train
    init: pretrain.soup
    tie: {{weight_decay: pretrain.weight_decay}}
    sweep:{SWEEP}
      trainable: sft
      space: {{learning_rate: {{loguniform: [1.0e-3, 1.0e-2]}}}}
      fixed: {{sequence_length: 192, max_steps: 2, eval_every: 2, batch_size: 4, eval_answers: 0,
              eval_sequences: 8, data: {{source: files, paths: "{{data}}/instructions/*.jsonl",
              splits: file_names, on_bad_data: skip}}}}
  - {{name: last, kind: average, of: sft, top: 2, method: uniform}}
  - {{name: exported, kind: export, model: sft.winner, to: [hf], verify: false}}
  - name: counted
    kind: command
    command: [sh, -c, 'wc -l < "$0" > "$1/lines"; echo $$ > "$1/pid"; test ! -e wait || sleep 600',
              "{{data}}/text/train.jsonl", "{{output}}"]
"""
KEEP = """
import os
import signal

def keep(text, place=os.path.join(os.path.dirname(__file__), "kill_in_data")):
    if os.path.exists(place):
        os.unlink(place)
        os.kill(os.getpid(), signal.SIGKILL)
    return True
"""
"""Ends the process at the next text, once, if a file is there."""
STAGES = (
    *("data", "pretrain", "confirmed", "averaged", "scores", "later", "sft", "last"),
    *("exported", "counted"),
)


UNTRACKED = FILE.replace(SWEEP, f"{SWEEP}      tracking: {{name: none}}\n")
"""The same stages, by their keys, and nothing in MLflow."""


def write(folder: Path, text: str = FILE) -> Path:
    """The file of the pipeline, in a folder of its own."""
    folder.mkdir(exist_ok=True)
    file = folder / "small.yaml"
    file.write_text(text)
    (folder / "keep.py").write_text(KEEP)
    return file


def drive(session: Any) -> SweepController:
    """Run the sweep of a session here: its trials are the same as under Ray."""
    keywords = {k: v for k, v in session.keywords.items() if k != "address"}
    if session.func is api.resume:
        paths, _ = api.amend(*session.args, **keywords)
    else:
        paths = api.create(*session.args, **keywords)
    with asked_session(paths, read_spec(paths)) as run:
        train_all(run)
    return run


def run(
    file: Path,
    selection: StageSelection = StageSelection(),  # noqa: B008
    notify: Callable[[str], None] = lambda line: None,
) -> PipelinePaths:
    """Run the stages, or go on with them, in this process."""
    paths = PipelinePaths(file.parent / "sweeps" / "small")
    with one_thread():
        if paths.is_pipeline:
            return resume_pipeline(paths, selection=selection, run_session=drive, notify=notify)
        storage = str(paths.root.parent)
        return run_pipeline(
            file, storage=storage, selection=selection, run_session=drive, notify=notify
        )


def started(file: Path, until: str, crash_at: str = "") -> BaseProcess:
    """A process that runs the stages until one, and ends at a fault point."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["tests.tuning.pipelines.warm"])
    process = context.Process(target=_run_until, args=(file, until, crash_at))
    process.start()
    return process


def _run_until(file: Path, until: str, crash_at: str) -> None:
    os.environ[VARIABLE] = crash_at
    run(file, StageSelection(until=until))
