"""Every kind of stage on models that are trained in this process, without Ray."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from results.models.stages import read_stages
from results.models.winners import winner_of
from results.records.pipeline import PipelinePaths
from results.records.spec_file import read_spec
from results.records.trial import read_trial, read_trials
from search_spaces.errors import UserError
from search_spaces.pipeline.loading import load_pipeline
from search_spaces.pipeline.stages import ExportStage
from tests.tuning.pipelines import small
from tests.tuning.pipelines.small import FILE
from tuning.pipelines.base import StageContext, run_stage
from tuning.pipelines.capacity import limit_budget
from tuning.pipelines.check import check_pipeline
from tuning.pipelines.keys import stage_keys
from tuning.pipelines.models import init_models


def test_models_are_averaged_confirmed_and_evaluated(made: PipelinePaths) -> None:
    found = read_stages(made).stages
    assert all(record.done for record in found.values())
    assert made.sweep("pretrain").soup("averaged").is_dir()
    confirmed = json.loads(made.sweep("pretrain").confirmation.read_text())
    assert {one["trial"] for one in confirmed["trials"]} == {"t0000", "t0001"}
    scores = json.loads((made.stage("scores") / "scores.json").read_text())
    assert found["scores"].result == {"model": found["confirmed"].result["winner"], **scores}
    assert scores["eval_loss"] > 0
    put_out = {name: [(m.kind, m.name) for m in one.models] for name, one in found.items()}
    assert put_out["averaged"] == [("soup", "averaged")]
    assert put_out["exported"] == [("export", found["sft"].result["winner"])]
    assert found["averaged"].models[0].digest == found["sft"].inputs[0].digest != ""


TASK = """
task: words
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: question
doc_to_choice: ["sun", "moon"]
doc_to_target: answer
"""


def test_an_evaluate_stage_takes_tasks(made: PipelinePaths, tmp_path: Path) -> None:
    pytest.importorskip("lm_eval")
    (rows := tmp_path / "rows.jsonl").write_text('{"question": "The", "answer": 0}\n')
    (task := tmp_path / "words.yaml").write_text(TASK.format(data=rows))
    # A name of its own: the folder of the stage `scores` belongs to every test.
    plain = "name: scores, kind: evaluate, model: pretrain.winner"
    own = f"name: by_tasks, kind: evaluate, model: pretrain.winner, tasks: [{task}]"
    pipeline = load_pipeline(small.write(tmp_path / "own", FILE.replace(plain, own)))
    stage = pipeline.stages["by_tasks"]
    output = run_stage(stage, StageContext(pipeline, made))
    assert output.result["eval/words/acc"] in (0, 1)
    assert output.result["eval_loss"] > 0
    (kept,) = made.sweep("pretrain").evaluations.glob("*.json")
    assert json.loads(kept.read_text())["tasks"]["words"]["examples"] == 1
    key = stage_keys(pipeline, tmp_path)["by_tasks"]
    task.write_text(task.read_text().replace("moon", "star"))
    assert stage_keys(pipeline, tmp_path)["by_tasks"] != key
    task.unlink()
    with pytest.raises(UserError, match="no task file is there"):
        check_pipeline(pipeline)


def test_an_export_stage_registers_the_model_in_mlflow(
    made: PipelinePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    stage = ExportStage(name="registered", kind="export", model="sft.winner", to=["mlflow"])
    output = run_stage(stage, StageContext(load_pipeline(made.spec), made))
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    (version,) = client.search_model_versions("name='small'")
    winner = read_stages(made).stages["sft"].result["winner"]
    assert output.result == {"model": winner, "mlflow": "models:/small/1"}
    assert version.tags["tune.model"] == winner


def test_a_stage_begins_with_the_soup_and_takes_the_tied_value(made: PipelinePaths) -> None:
    for record in read_trials(made.sweep("sft")):
        assert Path(record.config["model_name_or_path"]).name == "averaged-hf"
        assert record.config["weight_decay"] == 0.3


def test_each_model_to_begin_with_brings_the_values_that_are_tied_to_it(
    made: PipelinePaths,
) -> None:
    rates = {r.id: r.config["learning_rate"] for r in read_trials(made.sweep("pretrain"))}
    inputs = {model.path: model for model in read_stages(made).stages["later"].inputs}
    spec = read_spec(made.sweep("later"))
    assert "model_name_or_path" in spec.domains()
    for record in read_trials(made.sweep("later")):
        origin = inputs[record.params["model_name_or_path"]]
        assert record.config["learning_rate"] == rates[origin.name]
        assert origin.parameters["learning_rate"] == rates[origin.name]


def test_a_stage_gets_what_the_others_left_of_the_whole_budget(
    made: PipelinePaths, tmp_path: Path
) -> None:
    def left(trials: int) -> int | None:
        file = small.write(tmp_path)
        file.write_text(FILE.replace("\nstages:", f"\nbudget: {{trials: {trials}}}\nstages:"))
        pipeline = load_pipeline(file)
        context = StageContext(pipeline, made)
        return limit_budget(pipeline.sweeps["later"], context).spec.budget.trials

    assert [left(20), left(5)] == [2, 1]  # four trials of other stages have run
    with pytest.raises(UserError, match=r"is spent: 4 of 4 trials; raise budget\.trials"):
        left(4)


def test_a_copy_of_another_model_is_not_begun_with(made: PipelinePaths, tmp_path: Path) -> None:
    """The folder of an average that was made again, and one that no stage has recorded."""
    paths = PipelinePaths(shutil.copytree(made.root, tmp_path / "small"))
    context, records = StageContext(load_pipeline(made.spec), paths), read_stages(made)
    sft, stage = records.stages["sft"], context.pipeline.stages["sft"]
    here = replace(sft.inputs[0], path=str(paths.sweep("pretrain").exports / "averaged-hf"))
    same = replace(records, stages={**records.stages, "sft": replace(sft, inputs=(here,))})
    (model,) = init_models(stage, context, same)
    assert (model, model.folder.is_dir()) == (here, True)
    other = replace(sft, inputs=(replace(here, digest="another"),))
    assert init_models(stage, context, replace(same, stages={"sft": other})) == (here,)
    assert not model.folder.exists()


def test_the_winner_is_chosen_by_a_later_stage(made: PipelinePaths) -> None:
    """Also of a pipeline of the version before, which recorded no inputs."""
    pipeline, records = load_pipeline(made.spec), read_stages(made).stages
    pretrain = pipeline.stages["pretrain"].model_copy(update={"choose_by": "later.eval_loss"})
    best = read_trial(made.sweep("later").trial(records["later"].result["winner"]))
    names = {model.path: model.name for model in records["later"].inputs}
    expected = names[best.config["model_name_or_path"]]
    assert winner_of(pretrain, made, records) == expected
    before = {**records, "later": replace(records["later"], inputs=())}
    assert winner_of(pretrain, made, before) == expected
