"""A trial that follows another in one process learns what it learns in a fresh one, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.trainables.examples import EXAMPLES
from tests.trainables.fresh import FIRST, LATER, outcome
from tests.trainables.local import run_python
from trainables.runtime.memory import KEPT


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """Outcomes of later trials in fresh processes."""
    folder = tmp_path_factory.mktemp("fresh")
    run_python("-m", "tests.trainables.fresh", folder, cache, *EXAMPLES, timeout_s=280)
    return folder


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_later_trial_is_that_of_a_fresh_process(
    name: str, fresh: Path, tmp_path: Path, cache: Path
) -> None:
    example = EXAMPLES[name]
    outcome(tmp_path / "first", name, example.changed(**FIRST), cache, seed=0)
    found = outcome(tmp_path / "later", name, example.changed(**LATER), cache, seed=1)
    assert found == json.loads((fresh / f"{name}.json").read_text())
