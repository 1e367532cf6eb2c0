"""A pipeline file: stages, their order, and every mistake with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from search_spaces.errors import UserError
from search_spaces.pipeline.graph import dependencies
from search_spaces.pipeline.loading import freeze, is_pipeline_file, load_pipeline
from search_spaces.pipeline.stages import TrainStage

SHIPPED = Path(__file__).parents[3] / "search_spaces" / "pipelines" / "stories.yaml"
SWEEP = """{trainable: digits, metric: eval_loss, space: {learning_rate: {loguniform: [1e-3, 0.1]}},
      scheduler: {name: none}, budget: {trials: 2}}"""
TRAIN = f"  - {{name: a, kind: train, sweep: {SWEEP}}}\n"


def written(folder: Path, stages: str) -> Path:
    file = folder / "p.yaml"
    file.write_text(f"name: p\nstages:\n{stages}")
    return file


def problems(folder: Path, stages: str, *overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        load_pipeline(written(folder, stages), overrides)
    return "\n".join(caught.value.problems)


@pytest.mark.parametrize(
    ("stages", "line"),
    [
        (
            "  - {name: a, kind: command, command: [ls], from: [b]}\n"
            "  - {name: b, kind: command, command: [ls], from: [a]}\n",
            "p.yaml:3: stages.0: stages wait for each other: a → b → a",
        ),
        (
            TRAIN + "  - {name: b, kind: export, model: aa.winner, to: [hf]}\n",
            "p.yaml:5: stages.1.model: no stage 'aa' (did you mean 'a'?)",
        ),
        (
            "  - {name: pretrain, kind: command, command: [ls]}\n"
            "  - {name: b, kind: command, command: ['{pretrian}/x']}\n",
            "p.yaml:4: stages.1.command.0: no stage 'pretrian' (did you mean 'pretrain'?)",
        ),
        (
            "  - {name: a, kind: command, comand: [ls]}\n",
            "p.yaml:3: comand: unknown key (did you mean 'command'?)",
        ),
        (
            "  - {name: a, kind: trian}\n",
            "p.yaml:3: stages.0.kind: must be one of data, train, average, confirm, export, "
            "evaluate, command, got 'trian' (did you mean 'train'?)",
        ),
        (
            "  - {name: a, kind: command, command: [ls]}\n"
            "  - {name: b, kind: export, model: a.winner, to: [hf]}\n",
            "p.yaml:4: stages.1.model: a has no model: it is a stage of kind command, not train",
        ),
        (
            TRAIN + "  - {name: b, kind: export, model: a.top(2), to: [hf]}\n",
            "p.yaml:5: stages.1.model: one model is needed, and top(2) are several; write a.winner",
        ),
        (
            TRAIN + "  - {name: b, kind: export, model: a.soup, to: [hf]}\n",
            "p.yaml:5: stages.1.model: no stage averages a; add one: kind: average, of: a",
        ),
        (
            TRAIN + "  - {name: b, kind: export, model: a.best, to: [hf]}\n",
            "p.yaml:5: stages.1.model: names no model, got 'a.best'; a stage's model is like "
            "a.winner",
        ),
        (
            TRAIN + f"  - {{name: b, kind: train, choose_by: a.eval_loss, sweep: {SWEEP}}}\n",
            "p.yaml:5: stages.1.choose_by: a does not try several models of b; it needs init: "
            "b.top(3)",
        ),
        (TRAIN + TRAIN, "p.yaml:5: stages.1.name: two stages have the name a"),
        (
            "  - {name: a, kind: train, sweep: {trainable: digits, metrik: eval_loss}}\n",
            "p.yaml:3: metrik: unknown key (did you mean 'metric'?) (stage a)",
        ),
        ("  - {name: a, kind: train, sweep: no.yaml}\n", "p.yaml:3: stages.0.sweep: no such file"),
    ],
)
def test_mistakes_are_reported_by_line(tmp_path: Path, stages: str, line: str) -> None:
    assert line in problems(tmp_path, stages)


def test_a_mistake_in_an_override_names_the_stage(tmp_path: Path) -> None:
    found = problems(tmp_path, TRAIN, "b.budget.trials=3")
    assert found == "--set b.budget.trials=3: no stage 'b' (valid: a)"
    found = problems(tmp_path, TRAIN, "a.budget.trials=none")
    assert "budget.trials: must be a whole number" in found


def test_the_shipped_pipeline_is_read_and_its_frozen_copy_is_equal(tmp_path: Path) -> None:
    first = load_pipeline(SHIPPED, ["sft.sweep.budget.trials=3", "data.stories=200"])
    assert is_pipeline_file(SHIPPED)
    frozen = tmp_path / "pipeline.yaml"
    frozen.write_text(freeze(first))
    again = load_pipeline(frozen)
    assert again.stages == first.stages
    assert {n: s.spec for n, s in again.sweeps.items()} == {
        n: s.spec for n, s in first.sweeps.items()
    }
    assert again.sweeps["sft"].spec.budget.trials == 3
    assert again.directory == first.directory == SHIPPED.parent


def test_a_stage_comes_after_those_that_it_names_or_else_the_one_above(tmp_path: Path) -> None:
    stages = load_pipeline(SHIPPED).stages
    names = {name: dependencies(name, stages) for name in stages}
    assert names == {
        "data": (),
        "pretrain": ("data",),
        "sft": ("data", "pretrain"),
        "grpo": ("data", "sft"),
        "export": ("grpo",),
    }
    commands = "".join(
        f"  - {{name: {name}, kind: command, command: [ls]{rest}}}\n"
        for name, rest in {"b": ", from: [c]", "c": ", from: []", "d": ""}.items()
    )
    loaded = load_pipeline(written(tmp_path, commands))
    assert loaded.order == ["c", "b", "d"]
    assert dependencies("d", loaded.stages) == ("c",)


def test_the_winner_of_choose_by_is_known_after_the_stage_that_decides(tmp_path: Path) -> None:
    text = SHIPPED.read_text().replace("model: grpo.winner", "model: pretrain.winner")
    file = tmp_path / "p.yaml"
    file.write_text(text)
    stages = load_pipeline(file).stages
    assert dependencies("export", stages) == ("pretrain", "sft")


def test_a_sweep_file_is_taken_with_other_values(tmp_path: Path) -> None:
    (tmp_path / "llm.yaml").write_text((SHIPPED.parents[1] / "llm.yaml").read_text())
    line = "  - {name: a, kind: train, sweep: llm.yaml, set: {budget.trials: 3}}\n"
    loaded = load_pipeline(written(tmp_path, line))
    spec = loaded.sweeps["a"].spec
    assert (spec.name, spec.trainable, spec.budget.trials) == ("a", "causal_lm", 3)
    assert isinstance(loaded.stages["a"], TrainStage)
