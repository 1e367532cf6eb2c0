"""Every kind of stage on models that are trained in this process, without Ray."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from results.records.pipeline import PipelinePaths, read_stages
from results.records.spec_file import read_spec
from results.records.trial import read_trials
from search_spaces.errors import UserError
from search_spaces.pipeline.loading import load_pipeline
from tests.tuning.trained import train_all
from tuning import api
from tuning.controller.session import asked_session
from tuning.controller.sweep import SweepController
from tuning.pipelines.base import Surroundings
from tuning.pipelines.run import run_pipeline
from tuning.pipelines.spending import within

SWEEP = """
      metric: eval_loss
      search: {name: random}
      scheduler: {name: none}
      budget: {trials: 2}
      resources: {workers: 1}
      tracking: {name: none}
"""
FILE = f"""
name: small
stages:
  - {{name: data, kind: data, source: stories, stories: 300, near_duplicates: null, workers: 1}}
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
  - name: later
    kind: train
    init: pretrain.top(2)
    tie: {{learning_rate: pretrain.learning_rate}}
    sweep:{SWEEP}
      trainable: causal_lm
      space: {{grad_clip: {{uniform: [0.5, 1]}}}}
      fixed: {{sequence_length: 192, max_steps: 2, eval_every: 2, batch_size: 4, eval_sequences: 8,
              data: {{source: files, paths: "{{data}}/text/*.jsonl", splits: file_names}}}}
"""


def drive(session: Any) -> SweepController:
    """Run the sweep of a session here: its trials are the same as under Ray."""
    keywords = {k: v for k, v in session.keywords.items() if k != "address"}
    paths = api.create(*session.args, **keywords)
    with asked_session(paths, read_spec(paths)) as run:
        train_all(run)
    return run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> PipelinePaths:
    """The pipeline, at its end. Do not change it."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "small.yaml").write_text(FILE)
    return run_pipeline(folder / "small.yaml", storage=str(folder / "sweeps"), drive=drive)


def test_models_are_averaged_confirmed_and_evaluated(made: PipelinePaths) -> None:
    found = read_stages(made).stages
    assert all(record.done for record in found.values())
    assert made.sweep("pretrain").soup("averaged").is_dir()
    confirmed = json.loads(made.sweep("pretrain").confirmation.read_text())
    assert {one["trial"] for one in confirmed["trials"]} == {"t0000", "t0001"}
    scores = json.loads((made.stage("scores") / "scores.json").read_text())
    assert found["scores"].result == {"model": found["confirmed"].result["winner"], **scores}
    assert scores["eval_loss"] > 0


def test_a_stage_begins_with_the_soup_and_takes_the_tied_value(made: PipelinePaths) -> None:
    for record in read_trials(made.sweep("sft")):
        assert Path(record.config["model_name_or_path"]).name == "averaged-hf"
        assert record.config["weight_decay"] == 0.3


def test_each_model_to_begin_with_brings_the_values_that_are_tied_to_it(
    made: PipelinePaths,
) -> None:
    rates = {r.id: r.config["learning_rate"] for r in read_trials(made.sweep("pretrain"))}
    spec = read_spec(made.sweep("later"))
    assert "model_name_or_path" in spec.domains()
    for record in read_trials(made.sweep("later")):
        origin = Path(record.params["model_name_or_path"]).name.removesuffix("-hf")
        assert record.config["learning_rate"] == rates[origin]


def test_a_stage_gets_what_the_others_left_of_the_whole_budget(
    made: PipelinePaths, tmp_path: Path
) -> None:
    def left(trials: int) -> int | None:
        file = tmp_path / "small.yaml"
        file.write_text(FILE.replace("\nstages:", f"\nbudget: {{trials: {trials}}}\nstages:"))
        pipeline = load_pipeline(file)
        around = Surroundings(pipeline, made, {}, None, drive, print)
        return within(pipeline.sweeps["later"], around).spec.budget.trials

    assert [left(20), left(7)] == [2, 1]  # six trials have run
    with pytest.raises(UserError, match=r"is spent: 6 of 6 trials; raise budget\.trials"):
        left(6)
