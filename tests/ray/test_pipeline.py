"""A pipeline under Ray: killed, detached, paused, with two stages at once; equal to one without."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.models.stages import StageRecord, read_stages
from results.paths import SweepPaths
from results.records.pipeline import PipelinePaths
from results.records.trial import read_reports, read_trials
from results.sweep_folder.lock import current_driver
from tests.chaos.cluster import Cluster
from tests.ray.conftest import Tune, end
from tests.threads import one_thread
from tests.tuning.pipelines.small import drive
from tests.waiting import wait_for
from tuning.pipelines.run import run_pipeline

SWEEP = """
      metric: eval_loss
      search: {name: random}
      scheduler: {name: none}
      resources: {workers: 1, concurrency: 1}
      tracking: {name: none}
"""
FILE = f"""
name: stories
stages:
  - {{name: data, kind: data, source: stories, stories: 800, near_duplicates: null, workers: 1}}
  - name: pretrain
    kind: train
    choose_by: sft.eval_loss
    sweep:{SWEEP}
      trainable: causal_lm
      space: {{learning_rate: {{loguniform: [1.0e-3, 3.0e-2]}}}}
      fixed: {{hidden_size: 32, vocab_size: 300, sequence_length: 192, max_steps: 8, eval_every: 2,
              batch_size: 4, eval_sequences: 8,
              data: {{source: files, paths: "{{data}}/text/*.jsonl", splits: file_names}}}}
      budget: {{trials: 2}}
      checkpoint: {{every: 2}}
  - name: sft
    kind: train
    init: pretrain.top(2)
    sweep:{SWEEP}
      trainable: sft
      space: {{weight_decay: {{uniform: [0, 0.2]}}}}
      fixed: {{sequence_length: 192, max_steps: 4, eval_every: 2, batch_size: 4, eval_answers: 0,
              eval_sequences: 8, data: {{source: files, paths: "{{data}}/instructions/*.jsonl",
              splits: file_names, on_bad_data: skip}}}}
      budget: {{trials: 2}}
      checkpoint: {{every: 2}}
"""
MORE = """
  - name: {name}
    kind: train
    init: sft.winner
    sweep:{sweep}
      trainable: causal_lm
      space: {{grad_clip: {{uniform: [0.5, 1]}}}}
      fixed: {{sequence_length: 192, max_steps: 160, eval_every: 16, batch_size: 4,
              eval_sequences: 8,
              data: {{source: files, paths: "{{data}}/text/*.jsonl", splits: file_names}}}}
      budget: {{trials: 1}}
      checkpoint: {{every: 16}}
"""
EXPORT = "  - {name: export, kind: export, model: pretrain.winner, to: [hf], verify: false}\n"
TRAINED = ("pretrain", "sft", "one", "other")
STAGES = ("data", *TRAINED, "export")


def losses(paths: SweepPaths) -> dict[str, list[tuple[int, float, float]]]:
    found = {}
    for record in read_trials(paths):
        reports = read_reports(paths.trial(record.id), record.end_step)
        found[record.id] = [
            (r.step, r.metrics["eval_loss"], r.metrics["train_loss"]) for r in reports
        ]
    return found


def records(paths: PipelinePaths) -> dict[str, StageRecord]:
    return dict(read_stages(paths).stages)


def has_reported(stage: SweepPaths) -> bool:
    return any(stage.trials.glob("*/reports.jsonl"))


def kill_in_pretrain(tune: Tune, file: Path, paths: PipelinePaths) -> None:
    process = tune.start("run", file)
    wait_for(lambda: has_reported(paths.sweep("pretrain")), process)
    end(process)
    assert [records(paths)[name].done for name in ("data", "pretrain")] == [True, False]


def pause_with_two_stages(tune: Tune, paths: PipelinePaths) -> None:
    """Resume in the background, and pause once two stages run at once."""
    tune("resume", "stories", "--detach")
    both = [paths.sweep("one"), paths.sweep("other")]
    # a stage trains for seconds: one may be complete before the other one's workers have started
    wait_for(lambda: any(map(has_reported, both)) and all(current_driver(s.lock) for s in both))
    assert "is a pipeline; name a stage of it: stories/one" in tune("logs", "stories", code=2)
    assert "pauses now; continue with: tune resume stories" in tune("pause", "stories")
    wait_for(lambda: "the pipeline goes on with tune resume" in paths.log.read_text())
    assert "one | " in paths.log.read_text()
    done = {name for name, record in records(paths).items() if record.done}
    assert done >= {"data", "pretrain", "sft"}
    assert not done >= {*STAGES}
    assert "running" not in tune("ls")


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory, joined: Cluster) -> tuple[Tune, Path, int]:
    """The pipeline at its end, its file, and the workers that have started after the kill."""
    tune = Tune(tmp_path_factory.mktemp("stories"), joined.address)
    file, paths = tune.cwd / "stories.yaml", PipelinePaths(tune.cwd / "sweeps" / "stories")
    more = [MORE.format(name=name, sweep=SWEEP) for name in ("one", "other")]
    file.write_text(FILE + "".join(more) + EXPORT)
    planned = tune("plan", file)
    assert "stories: 6 stages" in planned
    assert "6 trials to run" in planned
    assert "forecast   none: no earlier run of this pipeline has trials of pretrain" in planned
    kill_in_pretrain(tune, file, paths)
    before = joined.began().count("RayTrainWorker")
    pause_with_two_stages(tune, paths)
    started = joined.began().count("RayTrainWorker") - before
    tune("resume", "stories")
    return tune, file, started


def test_a_pipeline_that_was_killed_and_paused_ends_as_one_without_ray_that_was_not(
    stories: tuple[Tune, Path, int],
) -> None:
    tune, file, _ = stories
    paths = PipelinePaths(tune.cwd / "sweeps" / "stories")
    with one_thread():
        whole = run_pipeline(file, storage=str(tune.cwd / "local"), run_session=drive)
    for stage in TRAINED:
        assert losses(paths.sweep(stage)) == losses(whole.sweep(stage)), stage
    found, expected = records(paths), records(whole)
    assert {n: (r.key, r.done) for n, r in found.items()} == {
        n: (r.key, True) for n, r in expected.items()
    }
    models = [Path(r["export"].result["hf"]) / "model.safetensors" for r in (found, expected)]
    assert models[0].read_bytes() == models[1].read_bytes()
    best, chosen = tune.best("stories/sft"), found["export"].result["model"]
    assert Path(best["params"]["model_name_or_path"]).name == f"{chosen}-hf"


def test_workers_stay_for_the_next_stage_and_end_before_two_stages_run_at_once(
    stories: tuple[Tune, Path, int],
) -> None:
    assert stories[2] == 3  # for pretrain and then sft, for one, and for other


def test_what_is_complete_is_not_run_again_and_plan_says_so(
    stories: tuple[Tune, Path, int],
) -> None:
    tune, file, _ = stories
    assert tune("run", file).count(": complete") == len(STAGES)
    assert "6 of 6 stages complete" in tune("show", "stories")
    planned = tune("plan", file, "--set", "sft.budget.trials=4")
    row = {line.split()[0]: line for line in planned.splitlines() if line}
    assert "nothing" in row["pretrain"]
    assert "about" in row["sft"]
    assert "budget     that of each stage; 6 trials to run" in planned
