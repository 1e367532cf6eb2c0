"""Ranks that share layers, or sequences in a ring, compute what one process computes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainables.parallel.test_layouts import spawn


@pytest.mark.layouts
def test_shared_layers_learn_what_a_whole_model_learns(tmp_path: Path) -> None:
    spawn(tmp_path, 2, [], "tests.trainables.parallel.heads")


@pytest.mark.parametrize(("world", "heads"), [(1, 2), (3, 4)])
def test_a_ring_attends_as_one_process(tmp_path: Path, world: int, heads: int) -> None:
    spawn(tmp_path, world, [str(heads)], "tests.trainables.parallel.ring_ranks")
