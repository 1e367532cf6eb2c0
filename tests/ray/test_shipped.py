"""The shipped sweep files that no other test runs, from the file to the winner."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sklearn.datasets import load_breast_cancer

from tests.ray.conftest import Tune

SHIPPED = Path(__file__).parents[2] / "search_spaces"
OF_TEXT = (
    "fixed.sequence_length=64",
    "fixed.max_steps=4",
    "fixed.eval_every=2",
    "scheduler.grace_period=2",
    "scheduler.max_t=4",
    "checkpoint.every=4",
)
OF_SUMS = (
    *OF_TEXT,
    "fixed.sft={hidden_size: 16, num_layers: 1, vocab_size: 270, batch_size: 16, max_steps: 2}",
    "fixed.data={difficulty: 1, max_rows: 90}",
    "fixed.batch_size=4",
)
OF_TREES = (
    "fixed.rounds=6",
    "fixed.report_every=2",
    "scheduler.grace_period=2",
    "scheduler.max_t=6",
    "checkpoint.every=2",
)
SMALL: dict[str, tuple[str, ...]] = {
    "grpo": (*OF_SUMS, "fixed.eval_sequences=8", "fixed.eval_samples=1"),
    "dpo": OF_SUMS,
    "sft": (
        *OF_TEXT,
        "fixed.pretrain={hidden_size: 16, num_layers: 1, vocab_size: 300, max_steps: 2,"
        " data: {max_bytes: 100000}}",
        "fixed.sequence_length=256",
        "fixed.data={max_rows: 200, on_bad_data: skip}",
        "fixed.eval_answers=2",
        "fixed.max_new_tokens=3",
        "resources.layout=fsdp",
    ),
    "classifier": (
        *OF_TEXT,
        "fixed.hidden_size=16",
        "fixed.data={max_rows: 400}",
        "resources.workers=2",
        "resources.layout=fsdp",
    ),
    "distill": (
        *OF_TEXT,
        "fixed.teacher={hidden_size: 32, num_layers: 1, vocab_size: 300, max_steps: 2}",
        "fixed.hidden_size=16",
        "fixed.data={max_bytes: 100000}",
    ),
    "image_classifier": (
        "fixed.width=8",
        "fixed.epochs=2",
        "scheduler.max_t=2",
        "resources.workers=2",
        "resources.layout=fsdp",
        "checkpoint.every=2",
    ),
    "xgboost": OF_TREES,
    "lightgbm": OF_TREES,
}


DAILY = ("sft", "xgboost")
"""The others are in `make user-code`."""
EACH = [n if n in DAILY else pytest.param(n, marks=pytest.mark.scripts) for n in SMALL]


@pytest.mark.parametrize("name", EACH)
def test_file_runs_to_its_winner(tune: Tune, name: str) -> None:
    changes = ("budget.trials=2", *SMALL[name])
    out = tune("run", SHIPPED / f"{name}.yaml", *(a for c in changes for a in ("--set", c)))
    assert "winner t000" in out
    assert "2 finished" in out
    records = tune.trials(name)
    assert all(r.end_step for r in records)
    made = [f.name.split("-")[0] for f in (tune.cwd / "sweeps" / "cache").glob("*-*/")]
    trees = SMALL[name] is OF_TREES
    expected = "classifier" not in name and not trees
    assert made.count("model") == expected, "trained once for both trials"
    if trees:
        assert "no weights with a mean" in tune("average", name, code=2)
        frame = load_breast_cancer(as_frame=True).data[:3]
        frame.to_csv(tune.cwd / "rows.csv", index=False)
        lines = tune("predict", name, "--input", "rows.csv").splitlines()
        assert [json.loads(line)["class"] for line in lines] == 3 * ["malignant"]


@pytest.mark.parametrize("file", ["digits.yaml", "pipelines/stories.yaml"])
def test_plan_prints_what_a_trial_needs(tune: Tune, file: str) -> None:
    found = json.loads(tune("plan", SHIPPED / file, "--json"))
    assert found["version"] == 1
    if file == "digits.yaml":
        assert found["trial"]["workers"] == 1
        assert len(found["samples"]) == 3
    else:
        assert not any(stage["complete"] for stage in found["stages"])
