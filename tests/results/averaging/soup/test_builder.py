"""Building a soup: its members, files and scores, and whether it is promoted."""

from __future__ import annotations

import json
import math
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from results.averaging.soup.builder import check_models
from results.averaging.soup.candidates import named_trials
from results.averaging.soup.scoring import gain, read_soup
from results.checkpoints.commit import commit, verify
from results.paths import SweepPaths
from search_spaces.errors import UserError
from tests.results.averaging.soups import SPEC, add, at, best, build, evaluator, losses


def test_greedy_soup_adds_only_candidates_that_do_not_lower_the_score(sweep: SweepPaths) -> None:
    add(sweep, 0, at(1), 0.1)  # alone: distance 1
    add(sweep, 1, at(9, 9), 0.2)  # draws the mean away
    add(sweep, 2, at(-1), 0.3)  # with the first: distance 0
    made = build(sweep, "greedy")
    assert made.members == ("t0000", "t0002")
    assert made.single == "t0000"
    assert made.promoted
    means = {name: round(score.mean) for name, score in made.scores.items()}
    assert means == {"single": 1, "uniform": 4, "greedy": 0}
    folder = sweep.soup("greedy")
    names = ["config.json", "lineage.json", "model.safetensors", "soup.json"]
    assert sorted(verify(folder).files) == names
    assert (folder / "config.json").read_text() == '"config.json of t0000"'
    assert read_soup(folder) == made
    assert made.candidates[1]["label"] == "t0001"
    assert made.candidates[1]["sha256"] == best(sweep)[1].sha256
    assert [p.name for p in folder.parent.iterdir()] == ["greedy"]


def test_greedy_soup_selects_on_the_selection_split(sweep: SweepPaths) -> None:
    """The test split has the opposite order, and is only reported."""
    add(sweep, 0, at(1), 0.1)
    add(sweep, 1, at(-1), 0.2)
    made = build(sweep, "greedy", scorer=evaluator(test=lambda f: [-x for x in losses(f)]))
    assert made.members == ("t0000", "t0001")
    assert made.gain.mean < 0
    assert not made.promoted


def test_greedy_soup_maximises_when_mode_is_max(sweep: SweepPaths) -> None:
    add(sweep, 0, at(1), 0.1)
    add(sweep, 1, at(3), 0.2)
    made = build(sweep, "greedy", scorer=evaluator("max"))
    assert (made.single, made.members) == ("t0001", ("t0001",))
    assert made.gain.mean == 0
    assert not made.promoted


def test_greedy_soup_does_not_add_a_candidate_with_a_nan_score(sweep: SweepPaths) -> None:
    add(sweep, 0, at(1), 0.1)
    add(sweep, 1, at(0.5), 0.2)

    def only_singles(folder: Path) -> list[float]:
        return losses(folder) if folder.name.startswith("step_") else [math.nan] * 60

    scorer = evaluator(selection=only_singles, test=only_singles)
    made = build(sweep, "greedy", scorer=scorer)
    assert made.members == ("t0001",)
    assert not made.promoted
    assert math.isnan(read_soup(sweep.soup("greedy")).scores["uniform"].mean)
    with pytest.raises(UserError, match="t0000: its 'loss' on the selection split is nan"):
        build(sweep, "greedy", scorer=evaluator(selection=lambda _: [math.nan]))
    assert [p.name for p in sweep.soup("x").parent.iterdir()] == ["greedy"]


def test_gain_is_significant_only_above_its_error() -> None:
    rng = np.random.default_rng(1)
    single = rng.normal(size=100)
    assert not gain(single - 0.01 + rng.normal(size=100) * 0.5, single, -1.0).is_significant
    # the same gain on every example: the paired differences show it
    sure = gain(single - 0.01 + rng.normal(size=100) * 0.01, single, -1.0)
    assert sure.is_significant
    assert sure.mean == pytest.approx(0.01, rel=0.2)
    assert not gain([0.1], [0.9], -1.0).is_significant, "one number has no error"


def test_soup_of_another_method_also_scores_greedy_and_uniform(sweep: SweepPaths) -> None:
    add(sweep, 0, at(2, 0), 0.1)
    add(sweep, 1, at(0, 2), 0.2)

    def base(folder: Path) -> tuple[Path, str | None]:
        save_file({"w": at(1, 1)}, folder / "model.safetensors")
        return folder / "model.safetensors", "abc"

    made = build(sweep, "task_arithmetic", base=base, dtype="float32")
    assert made.scores.keys() == {"single", "uniform", "greedy", "task_arithmetic"}
    found = load_file(sweep.soup("task_arithmetic") / "model.safetensors")["w"]
    assert found.dtype == np.float32
    assert found.tolist() == at(1, 1).tolist()
    assert [p.name for p in sweep.soup("x").parent.iterdir()] == ["task_arithmetic"]
    with pytest.raises(UserError, match="t0000 did not start from these weights"):
        build(sweep, "ties", base=lambda f: (base(f)[0], "cba"))
    with pytest.raises(UserError, match="unknown whether the models started from these"):
        build(sweep, "ties", base=lambda f: (base(f)[0], None))
    assert build(sweep, "ties", base=lambda f: (base(f)[0], None), force=True).force


def test_soup_is_recalibrated_before_each_evaluation(sweep: SweepPaths) -> None:
    add(sweep, 0, at(2), 0.1)
    add(sweep, 1, at(4), 0.2)

    def to_centre(folder: Path) -> None:
        save_file({"w": at(0)}, folder / "model.safetensors")

    made = build(sweep, "uniform", scorer=evaluator(recalibrate=to_centre))
    assert made.scores["uniform"].mean < 1
    assert load_file(sweep.soup("uniform") / "model.safetensors")["w"].tolist() == [0.0] * 8


def test_soup_is_split_into_shards(sweep: SweepPaths) -> None:
    many = {f"w{i}": np.ones(100) for i in range(4)}
    for number in (0, 1):
        add(sweep, number, at(number), 0.1)
        folder = sweep.trial(f"t{number:04d}").checkpoint(3)
        save_file({**many, "w": at(number)}, folder / "model.safetensors")
        commit(folder.rename(folder.with_name("x")), folder, step=3)
    build(sweep, "uniform", max_shard=2000)
    names = sorted(verify(sweep.soup("uniform")).files)
    assert "model.safetensors.index.json" in names
    assert "model-00001-of-00002.safetensors" in names
    assert "model.safetensors" not in names


def test_read_soup_refuses_a_folder_without_its_record(sweep: SweepPaths) -> None:
    with pytest.raises(UserError, match=r"no soup \(soup\.json is missing or damaged\)"):
        read_soup(sweep.soup("none"))


def test_check_models_refuses_models_of_different_starts(sweep: SweepPaths) -> None:
    add(sweep, 0, at(1), 0.1)
    add(sweep, 1, at(1), 0.2, init="other")
    add(sweep, 2, at(1), 0.3, init=None)
    add(sweep, 3, np.ones(3), 0.4, init="other")
    add(sweep, 4, at(1), 0.5)
    with pytest.raises(UserError) as caught:
        check_models(best(sweep))
    unknown, start, shape = caught.value.problems
    assert unknown.startswith("trial t0002: ")
    assert start.startswith("trials t0000 and t0001 cannot be averaged: they started from differ")
    assert shape == (
        "trials t0000 and t0003 cannot be averaged: tensor 'w' is [8] in one and [3] in the other"
    )
    with pytest.raises(UserError):
        build(sweep, "uniform")
    assert not sweep.soup("uniform").exists()
    some = named_trials(sweep, SPEC, ["t0000", "t0001", "t0002"])
    forced = build(sweep, "uniform", candidates=some, force=True)
    assert forced.members == ("t0000", "t0001", "t0002")
    with pytest.raises(UserError, match="tensor 'w' is"):
        build(sweep, "uniform", force=True)


def test_wrong_weights_are_refused_before_a_model_is_evaluated(sweep: SweepPaths) -> None:
    add(sweep, 0, at(1), 0.1)
    add(sweep, 1, at(1), 0.2)

    def evaluate(_: Path) -> list[float]:
        raise AssertionError

    with pytest.raises(UserError, match="2 models cannot have 3 weights"):
        build(sweep, "weighted", scorer=evaluator(selection=evaluate), weights=[1, 2, 3])


def test_check_models_refuses_adapters_of_different_scales(sweep: SweepPaths) -> None:
    add(sweep, 0, at(1), 0.1, adapter_config={"r": 4, "lora_alpha": 8})
    add(sweep, 1, at(1), 0.2, adapter_config={"r": 4, "lora_alpha": 16})
    with pytest.raises(UserError, match=r"adapter_config.json has lora_alpha: 8 in one and 16 in"):
        check_models(best(sweep), force=True)


@pytest.mark.parametrize(
    ("key", "one", "other"),
    [
        ("id2label", {"0": "cat"}, {"0": "dog"}),
        ("num_attention_heads", 2, 4),
        ("num_experts_per_tok", 1, 2),
        ("rope_theta", 1e4, 1e6),
        ("hidden_act", "silu", None),
    ],
)
def test_check_models_refuses_tensors_that_are_used_in_another_way(
    sweep: SweepPaths, key: str, one: object, other: object
) -> None:
    add(sweep, 0, at(1), 0.1)
    add(sweep, 1, at(1), 0.2)
    models = best(sweep)
    for model, value in zip(models, (one, other), strict=True):
        (model.folder / "config.json").write_text(json.dumps({key: value}))
    with pytest.raises(UserError, match=f"config.json has {key}: {one} in one and {other} in the"):
        check_models(models, force=True)


def test_check_models_refuses_other_data_and_allows_other_dropout(sweep: SweepPaths) -> None:
    """A tokenizer that was trained on another text gives the same tensors another meaning."""
    for number in (0, 1):
        add(sweep, number, at(1), 0.1, data={"key": "abc"})
    models = best(sweep)
    for model, dropout in zip(models, (0.0, 0.1), strict=True):
        config = {"attention_dropout": dropout, "transformers_version": f"5.{dropout}"}
        (model.folder / "config.json").write_text(json.dumps(config))
    check_models(models)
    (models[1].folder / "data.json").write_text('{"key": "cba"}')
    with pytest.raises(UserError, match="t0001 cannot be averaged: they learned from other data"):
        check_models(models)
    check_models(models, force=True)  # as with one pretrained model on several data sets
    (models[1].folder / "data.json").unlink()  # of an earlier version of this program
    check_models(models)


@pytest.mark.parametrize(("version", "fits"), [("5.1", False), ("5.2", True)])
def test_key_that_another_version_does_not_have_is_no_other_meaning(
    sweep: SweepPaths, version: str, fits: bool
) -> None:
    add(sweep, 0, at(1), 0.1)
    add(sweep, 1, at(1), 0.2)
    models, own = best(sweep), {"transformers_version": "5.1", "scale": 2}
    for model, config in zip(models, (own, {"transformers_version": version}), strict=True):
        (model.folder / "config.json").write_text(json.dumps(config))
    with nullcontext() if fits else pytest.raises(UserError, match=r"config\.json has scale"):
        check_models(models)


def test_soup_of_merged_models_has_their_settings(sweep: SweepPaths, tmp_path: Path) -> None:
    add(sweep, 0, at(1), 0.1)
    add(sweep, 1, at(3), 0.2)
    merged = tmp_path / "merged"
    shutil.copytree(best(sweep)[0].folder, merged)
    (merged / "generation_config.json").write_text('{"eos_token_id": [0, 2]}')
    models = [replace(model, merged=merged) for model in best(sweep)]
    build(sweep, "uniform", candidates=models)
    assert "[0, 2]" in (sweep.soup("uniform") / "generation_config.json").read_text()
