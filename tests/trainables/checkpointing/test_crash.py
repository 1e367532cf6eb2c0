"""A trial that is killed at any fault point resumes with the same curve."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.trainables.crash import EVERY
from tests.trainables.local import run_python

pytestmark = pytest.mark.slow
POINTS = [
    "reports.jsonl:written",
    "reports.jsonl:durable:3",
    "reports.jsonl:written:6",
    "checkpoint:opened",
    "checkpoint:saved:2",
    "checkpoint:file-synced:3",
    "manifest.json:written",
    "manifest.json:renamed:3",
    "manifest.json:durable:2",
    "checkpoint:renamed",
    "checkpoint:durable:2",
    "checkpoint:discarding",
    "checkpoint:pruned:3",
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    printed = run_python("-m", "tests.trainables.crash", tmp_path_factory.mktemp("crash"), *POINTS)
    results: dict[str, Any] = json.loads(printed)
    return results


@pytest.mark.parametrize("point", POINTS)
def test_resume_after_kill_repeats_one_interval_and_gives_the_same_curve(
    point: str, runs: dict[str, Any]
) -> None:
    run, whole = runs[point], runs["whole"]
    assert (run["died"], run["resumed"]) == (-9, 0)
    curve = [(step, metrics) for step, _, metrics in run["after"]["reports"]]
    assert curve == [(step, metrics) for step, _, metrics in whole["reports"]]
    assert run["after"]["weights"] == whole["weights"]
    assert (run["after"]["damaged"], run["after"]["hidden"]) == (0, [])
    before = run["before"]
    assert before["damaged"] == 0
    twice = [step for step, _, _ in before["reports"] if step > before["newest"]]
    assert len(twice) <= EVERY
