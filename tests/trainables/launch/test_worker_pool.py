from pathlib import Path

import pytest

from search_spaces.spec.resources import ResourcesSpec
from trainables.launch.ray_train import WorkerGroupSpec
from trainables.launch.ray_train_loops.pool import part_of_bundle
from trainables.launch.worker_pool import trials_per_lane

CODE = """
from trainables.base import Trainable

class Alone(Trainable):
    isolation = "trial"

    def train(self, config, worker): ...

    def evaluate(self, config, weights, split, cache): ...
"""


@pytest.mark.parametrize(
    ("kind", "trainable", "expected"),
    [
        ("lane", "digits", 7),
        ("trial", "digits", 1),
        ("lane", "alone.py:Alone", 1),
        ("trial", "alone.py:Alone", 1),
    ],
)
def test_trials_per_lane_by_sweep_and_trainable(
    kind: str, trainable: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alone.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    resources = ResourcesSpec(isolation=kind, max_trials_per_lane=7)
    assert trials_per_lane(resources, trainable) == expected


def test_trials_per_lane_is_unlimited_by_default() -> None:
    assert trials_per_lane(ResourcesSpec(), "digits") is None


@pytest.mark.parametrize(
    ("spares", "gpus", "part"),
    [(True, 0, 0.5), (False, 0, 1.0), (True, 1, 1.0), (True, 0.25, 1.0)],
)
def test_spare_shares_a_bundle_unless_its_workers_have_gpus(
    spares: bool, gpus: float, part: float
) -> None:
    assert part_of_bundle(WorkerGroupSpec(1, 1, gpus, 10, "ray"), spares) == part
