"""A sweep of the language model in bfloat16 on the device, and what is made of its result."""

from __future__ import annotations

import json

import pytest

from tests.gpu.probe import LLM, sets
from tests.ray.conftest import Tune

ONE = "resources={workers: 1, gpus_per_worker: 1}"
SMALL = (
    ONE,
    "budget.trials=3",
    "fixed.max_steps=40",
    "fixed.eval_every=10",
    "fixed.dtype=bfloat16",
    "space.batch_size=16",
    "scheduler.grace_period=10",
    "scheduler.max_t=40",
    "checkpoint.every=10",
)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, device_name: str) -> Tune:
    """A finished sweep of the language model in bfloat16."""
    tune = Tune(tmp_path_factory.mktemp("llm"), address="")
    tune("run", LLM, *sets(*SMALL))
    return tune


def test_language_model_learns_in_bfloat16(swept: Tune) -> None:
    curves = [
        [r.metrics["eval_loss"] for r in swept.curve("llm", t.id)] for t in swept.trials("llm")
    ]
    assert max(map(len, curves)) == 4
    for losses in curves:
        assert losses == sorted(losses, reverse=True)


def test_sweep_that_was_killed_ends_with_the_same_curves(swept: Tune, tune: Tune) -> None:
    tune.killed_at("driver:decided:6", "run", LLM, *sets(*SMALL))
    tune("resume", "llm")
    assert any(
        r.attempt == 2 and r.step > 10 for t in tune.trials("llm") for r in tune.curve("llm", t.id)
    )
    assert tune.values("llm") == swept.values("llm")


def test_winner_is_confirmed_averaged_exported_and_generates(swept: Tune, device_name: str) -> None:
    assert "confirmed" in swept("best", "llm", "--confirm", "1", "--seeds", "1")
    for file in (swept.cwd / "sweeps").rglob("environment.json"):
        assert json.loads(file.read_text())["hardware"]["device"] == device_name
    assert "soup" in swept("average", "llm", "--top", "2", "--name", "soup")
    assert "hf" in swept("export", "llm", "--to", "hf")
    said = swept("generate", "llm", "--prompt", "def main(", "--max-new-tokens", "8")
    assert said.startswith("def main(")
