"""A pipeline from raw text to an exported model: killed, resumed, run twice, and changed."""

from __future__ import annotations

from pathlib import Path

from results.paths import SweepPaths
from results.records.pipeline import PipelinePaths, StageRecord, read_stages
from results.records.trial import read_reports, read_trials
from tests.ray.conftest import Tune, end, wait_for

FILE = """
name: stories
stages:
  - {name: data, kind: data, source: stories, stories: 800, near_duplicates: null, workers: 1}
  - name: pretrain
    kind: train
    choose_by: sft.eval_loss
    sweep:
      trainable: causal_lm
      metric: eval_loss
      space: {learning_rate: {loguniform: [1.0e-3, 3.0e-2]}}
      fixed: {hidden_size: 32, vocab_size: 300, sequence_length: 192, max_steps: 8, eval_every: 2,
              batch_size: 4, data: {source: files, paths: "{data}/text/*.jsonl",
              splits: file_names}}
      search: {name: random}
      scheduler: {name: none}
      budget: {trials: 2}
      resources: {workers: 1}
      checkpoint: {every: 2}
      tracking: {name: none}
  - name: sft
    kind: train
    init: pretrain.top(2)
    sweep:
      trainable: sft
      metric: eval_loss
      space: {weight_decay: {uniform: [0, 0.2]}}
      fixed: {sequence_length: 192, max_steps: 4, eval_every: 2, batch_size: 4, eval_answers: 0,
              data: {source: files, paths: "{data}/instructions/*.jsonl", splits: file_names,
              on_bad_data: skip}}
      search: {name: random}
      scheduler: {name: none}
      budget: {trials: 2}
      resources: {workers: 1}
      checkpoint: {every: 2}
      tracking: {name: none}
  - {name: export, kind: export, model: pretrain.winner, to: [hf], verify: false}
"""
STAGES = ("data", "pretrain", "sft", "export")


def losses(paths: SweepPaths) -> dict[str, list[tuple[int, float, float]]]:
    found = {}
    for record in read_trials(paths):
        reports = read_reports(paths.trial(record.id), record.end_step)
        found[record.id] = [
            (r.step, r.metrics["eval_loss"], r.metrics["train_loss"]) for r in reports
        ]
    return found


def records(tune: Tune, name: str) -> dict[str, StageRecord]:
    return dict(read_stages(PipelinePaths(tune.cwd / "sweeps" / name)).stages)


def kill_in(stage: SweepPaths, tune: Tune, *command: str | Path) -> None:
    """Run a command, and kill its process once a trial of the stage has reported."""
    process = tune.start(*command)
    wait_for(lambda: any(stage.trials.glob("*/reports.jsonl")), process)
    end(process)


def test_a_killed_pipeline_ends_as_one_that_was_not_and_runs_what_changed(tune: Tune) -> None:
    file = tune.cwd / "stories.yaml"
    file.write_text(FILE)
    whole = PipelinePaths(tune.cwd / "sweeps" / "whole")
    killed = PipelinePaths(tune.cwd / "sweeps" / "stories")
    tune("run", file, "--name", "whole")
    kill_in(killed.sweep("pretrain"), tune, "run", file)
    assert [records(tune, "stories")[name].done for name in ("data", "pretrain")] == [True, False]
    kill_in(killed.sweep("sft"), tune, "resume", "stories")
    tune("resume", "stories")

    for stage in ("pretrain", "sft"):
        assert losses(killed.sweep(stage)) == losses(whole.sweep(stage)), stage
        assert len(losses(whole.sweep(stage))) == 2
    done, other = records(tune, "stories"), records(tune, "whole")
    assert {n: (r.key, r.done) for n, r in done.items()} == {
        n: (r.key, r.done) for n, r in other.items()
    }
    assert tuple(done) == STAGES
    models = [next(Path(r["export"].result["hf"]).glob("model.safetensors")) for r in (done, other)]
    assert models[0].read_bytes() == models[1].read_bytes()
    origins = {r.params["model_name_or_path"] for r in read_trials(killed.sweep("sft"))}
    assert all(Path(folder).parent == killed.sweep("pretrain").exports for folder in origins)
    best = tune.best("stories/sft")
    assert Path(best["params"]["model_name_or_path"]).name == f"{done['export'].result['model']}-hf"

    assert tune("run", file).count(": complete") == len(STAGES)
    assert records(tune, "stories") == done

    tune("run", file, "--set", "sft.space.weight_decay={uniform: [0, 0.1]}")
    changed = records(tune, "stories")
    assert {name for name in STAGES if changed[name] != done[name]} == {"sft", "export"}
    assert losses(killed.sweep("sft")) != losses(whole.sweep("sft"))
    assert tune("run", file).count(": complete") == len(STAGES)  # as it was: taken back
    assert losses(killed.sweep("sft")) == losses(whole.sweep("sft"))
