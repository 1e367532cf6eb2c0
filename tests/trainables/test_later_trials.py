"""A trial that follows another in one process learns what it learns in a fresh one, bit for bit."""

from __future__ import annotations

import json
import weakref
from pathlib import Path
from typing import Any

import pytest
from torch._dynamo.utils import counters

from tests.trainables.classifier.test_classifier import config_of
from tests.trainables.examples import EXAMPLES
from tests.trainables.fresh import FIRST, LATER, outcome
from tests.trainables.local import run_python
from trainables.runtime.leftovers import KEPT
from trainables.training.checkpoint import weights_digest


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """Outcomes of later trials in fresh processes."""
    folder = tmp_path_factory.mktemp("fresh")
    run_python("-m", "tests.trainables.fresh", folder, cache, "{}", *EXAMPLES, timeout_s=280)
    return folder


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_later_trial_is_that_of_a_fresh_process(
    name: str, fresh: Path, tmp_path: Path, cache: Path
) -> None:
    example = EXAMPLES[name]
    outcome(tmp_path / "first", name, example.changed(**FIRST), cache, seed=0)
    found = outcome(tmp_path / "later", name, example.changed(**LATER), cache, seed=1)
    assert found == json.loads((fresh / f"{name}.json").read_text())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's compiler
@pytest.mark.layouts
@pytest.mark.parametrize("name", ["causal_lm", "distill", "sft", "dpo", "grpo"])
def test_a_later_compiled_trial_is_that_of_a_fresh_process(
    name: str, tmp_path: Path, cache: Path
) -> None:
    whole = {"compile": True, "experts": None} if name == "distill" else {"compile": True}
    example = EXAMPLES[name]
    outcome(tmp_path / "first", name, example.changed(**FIRST, **whole), cache, seed=0)
    counters.clear()
    found = outcome(tmp_path / "later", name, example.changed(**LATER, **whole), cache, seed=1)
    if name in ("causal_lm", "distill"):  # batches of others may have another width
        assert not counters["frames"]
    assert not counters["graph_break"]
    changes = json.dumps(whole)
    run_python("-m", "tests.trainables.fresh", tmp_path, cache, changes, name, timeout_s=280)
    assert found == json.loads((tmp_path / f"{name}.json").read_text())


ADAPTERS: dict[str, tuple[str, dict[str, Any]]] = {
    "dora": ("sft", {"lora": {"rank": 2, "use_dora": True}}),
    "modules": ("dpo", {"lora": {"rank": 2, "modules_to_save": ["model.norm", "mlp"]}}),
    "kto": ("dpo", {"loss": "kto", "lora": {"rank": 2}}),
    "head": ("classifier", {"lora": {"rank": 2}}),
}


@pytest.mark.parametrize("variant", ADAPTERS)
def test_later_adapters_share_the_base_that_the_process_has_read(
    variant: str, tmp_path: Path, cache: Path
) -> None:
    name, changes = ADAPTERS[variant]
    example = EXAMPLES[name].config if name != "classifier" else config_of(tmp_path)
    config = {**example, **changes, "max_steps": 2}
    KEPT.keep(None, None)
    outcome(tmp_path / "first", name, {**config, **FIRST}, cache, seed=0)
    base, digest = KEPT.value
    found = outcome(tmp_path / "later", name, {**config, **LATER}, cache, seed=1)
    assert KEPT.value[0] is base
    assert weights_digest(base) == digest
    assert not KEPT.memory().host  # its weights are a mapped file
    kept = weakref.ref(base)
    del base
    outcome(tmp_path / "other", "causal_lm", EXAMPLES["causal_lm"].config, cache, seed=0)
    assert kept() is None
    assert KEPT.memory().host == sum(p.nbytes for p in KEPT.value[0].parameters())
    assert found == outcome(tmp_path / "alone", name, {**config, **LATER}, cache, seed=1)
