"""The shipped sweep files that no other test runs, from the file to the winner."""

from __future__ import annotations

from pathlib import Path

import pytest

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
}


@pytest.mark.parametrize("name", SMALL)
def test_file_runs_to_its_winner(tune: Tune, name: str) -> None:
    changes = ("budget.trials=2", *SMALL[name])
    out = tune("run", SHIPPED / f"{name}.yaml", *(a for c in changes for a in ("--set", c)))
    assert "winner t000" in out
    assert "2 finished" in out
    records = tune.trials(name)
    assert all(r.end_step for r in records)
    made = [f.name.split("-")[0] for f in (tune.cwd / "sweeps" / "cache").glob("*-*/")]
    assert made.count("model") == ("classifier" not in name), "trained once for both trials"
