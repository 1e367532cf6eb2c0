"""A pipeline that has run: its name as a model, its lineage, its report, and its runs in MLflow."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from results.models.lineage import DataSet, TrainedModel, ancestors
from results.models.stages import read_stages
from results.records.pipeline import PipelinePaths
from results.records.trial import read_trials
from results.report.pipeline_page import arcs_of
from search_spaces.errors import UserError
from tests.cli.conftest import Tune
from tests.results.report.messages import messages
from tests.tuning.pipelines.small import FILE
from tuning.pipelines.folder import last_soup, last_sweep


@pytest.fixture
def tune(
    made: PipelinePaths, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Tune:
    monkeypatch.setenv("TUNE_STORAGE", str(made.root.parent))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return Tune(made.root.parent, capsys, monkeypatch)


def test_the_name_of_a_pipeline_is_the_model_of_its_last_train_stage(
    tune: Tune, made: PipelinePaths
) -> None:
    said = ("--prompt", "Once upon a time", "--max-new-tokens", "4")
    whole = tune("generate", "small", *said).out
    assert whole == tune("generate", "small/sft", "--soup", "last", *said).out
    one = tune("generate", "small", "--trial", "t0001", *said).out
    assert one == tune("generate", "small/sft", "--trial", "t0001", *said).out
    assert tune("best", "small").out == tune("best", "small/sft").out
    rows = tune("show", "small", "--csv").out.splitlines()
    assert rows[0].startswith("trial,step,time,attempt,")
    assert [row.split(",")[:2] for row in rows[1:]] == [["t0000", "2"], ["t0001", "2"]]
    assert tune.refused("show", "small", "t0000") == (
        "small is a pipeline; name a stage of it: small/later, small/pretrain, small/sft\n"
    )


def test_a_pipeline_that_has_not_come_so_far_has_no_model(tmp_path: Path) -> None:
    paths = PipelinePaths(tmp_path / "small")
    paths.root.mkdir()
    paths.spec.write_text(FILE)
    with pytest.raises(UserError, match=r"^small: its last train stage, sft, has not begun$"):
        last_sweep(paths)
    for name in ("pretrain", "sft"):
        paths.stage(name).mkdir(parents=True)
        (paths.sweep(name).spec).touch()
    with pytest.raises(
        UserError, match=r"its stage last is not complete; .*, or use .*/small/stages/sft$"
    ):
        last_soup(paths)
    paths.sweep("sft").spec.unlink()
    with pytest.raises(
        UserError, match=r"has not begun; name another stage: .*/small/stages/pretrain$"
    ):
        last_soup(paths)
    paths.spec.write_text("name: small\nstages: [{name: a, kind: command, command: [ls]}]\n")
    with pytest.raises(UserError, match="small: has no train stage, so it has no model"):
        last_sweep(paths)


def test_the_model_card_tells_the_whole_lineage(tune: Tune, made: PipelinePaths) -> None:
    tune("export", "small", "--to", "hf", "--no-verify", "--force")
    card = (made.sweep("sft").exports / "last-hf" / "README.md").read_text()
    assert re.findall("^### (.*)$", card, re.MULTILINE) == [
        "small/data",
        "small/pretrain averaged",
        "small/sft last",
    ]
    for record in (read_stages(made).stages[name] for name in ("data", "pretrain", "sft")):
        assert f"- key of the stage: `{record.key}`" in card
    for name in ("text/train.jsonl", "instructions/test.jsonl"):
        digest = hashlib.sha256((made.stage("data") / name).read_bytes()).hexdigest()
        assert f"- SHA-256 of `{name}`: `{digest}`" in card
    assert card.partition("# ")[2].startswith("small/sft: ")
    assert "- model_name_or_path: `small/pretrain averaged`" in card
    assert "- data.paths.0: `small/data`" in card
    assert card.count("- average: `uniform of t000") == 2
    for record in read_trials(made.sweep("pretrain")):
        assert f'"learning_rate": {record.params["learning_rate"]}' in card
    weights = made.sweep("pretrain").soup("averaged") / "model.safetensors"
    assert hashlib.sha256(weights.read_bytes()).hexdigest() in card
    winner = made.sweep("later")
    found = ancestors(winner, "t0000")
    assert [type(one) for one in found] == [DataSet, TrainedModel, TrainedModel]
    assert found[0].title == "small/data"
    origin = read_trials(winner)[0].params["model_name_or_path"]
    assert f"{found[1].name}-hf" == Path(origin).name


def test_the_report_draws_the_stages_and_links_to_theirs(
    tune: Tune, made: PipelinePaths, tmp_path: Path
) -> None:
    tune("report", "small", "--html", tmp_path / "small.html")
    page = (tmp_path / "small.html").read_text()
    assert "http" not in page
    assert "src=" not in page
    assert len(page) < 50_000
    found = messages(page)
    graph = found["Stages"]["html"]
    links = re.findall('href="([^"]+)"', graph)
    assert [(tmp_path / link).resolve() for link in links] == [
        made.sweep(name).report for name in ("pretrain", "later", "sft")
    ]
    words = re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", graph))
    assert re.search(r"from pretrain: t000\d, t000\d \(top\(2\), tied learning_rate\)", words)
    assert "takes from pretrain: averaged (soup, tied weight_decay)" in words
    assert "takes from data: instructions/*.jsonl" in words
    assert graph.count('class="arc"') == 10
    loss = read_stages(made).stages["sft"].result["eval_loss"]
    assert f"eval_loss {loss:.5g}" in words


def test_arrows_beside_the_boxes_share_a_lane_if_they_are_from_one_stage() -> None:
    needed = {"a": [], "b": [], "c": ["a", "b"], "d": ["a", "b"], "e": [], "f": ["d"]}
    assert {arc.title: (arc.start, arc.end, arc.lane) for arc in arcs_of(needed)} == {
        "b → d": (9, 17, 1),
        "a → c": (4, 12, 2),
        "a → d": (4, 17, 2),
        "d → f": (19, 27, 1),
    }


def test_mlflow_nests_the_stages_and_says_what_each_began_with(
    tune: Tune, made: PipelinePaths
) -> None:
    for _ in range(2):
        tune("sync", "small")
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{made.root.parent}/mlflow.db")
    (experiment,) = (e for e in client.search_experiments() if e.name == "small")
    found = client.search_runs([experiment.experiment_id])
    runs = [client.get_run(run.info.run_id) for run in found]  # with the models that they took
    (whole,) = (run for run in runs if "mlflow.parentRunId" not in run.data.tags)
    assert (whole.info.run_name, whole.info.status) == ("small", "FINISHED")
    stages = {r.info.run_name: r for r in runs if parent(r) == whole.info.run_id}
    assert stages.keys() == read_stages(made).stages.keys()
    trials = [run for run in runs if parent(run) == stages["sft"].info.run_id]
    assert sorted(run.info.run_name for run in trials) == ["last", "t0000", "t0001"]
    loss = read_stages(made).stages["sft"].result["eval_loss"]
    assert whole.data.metrics["sft/eval_loss"] == loss

    (taken,) = stages["sft"].inputs.model_inputs
    model = client.get_logged_model(taken.model_id)
    assert model.name == "pretrain-averaged"
    assert model.tags["tune.ancestors"] == "small/data, small/pretrain averaged"
    soup = next(r for r in runs if r.info.run_name == "averaged" and "tune.average" in r.data.tags)
    assert model.source_run_id == soup.info.run_id
    assert len(stages["later"].inputs.model_inputs) == 2
    (put_out,) = stages["sft"].outputs.model_outputs
    winner = read_stages(made).stages["sft"].result["winner"]
    assert client.get_logged_model(put_out.model_id).name == f"sft-{winner}"

    used = {d.dataset.name: d.dataset.digest for d in stages["sft"].inputs.dataset_inputs}
    assert used.keys() == {
        f"small/data/instructions/{split}.jsonl" for split in ("train", "selection", "test")
    }
    file = made.stage("data") / "instructions" / "train.jsonl"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert used["small/data/instructions/train.jsonl"] == digest[:36]
    assert stages["sft"].data.tags["tune.from.pretrain"].startswith("averaged (soup")


def parent(run: Any) -> str | None:
    return run.data.tags.get("mlflow.parentRunId")
