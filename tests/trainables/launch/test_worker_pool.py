from pathlib import Path

import pytest

from search_spaces.spec.resources import ResourcesSpec
from trainables.launch.worker_pool import trials_per_lane

CODE = """
from trainables.base import Trainable

class Alone(Trainable):
    isolation = "trial"

    def train(self, config, worker): ...

    def evaluate(self, config, weights, split, cache): ...
"""

LOOPS = """
import ray.train

def loop(config):
    ray.train.report({})

def connects(config):
    import jax.numpy
    ray.train.report({})

def main(config):
    make_trainer(loop).fit()
"""


@pytest.mark.parametrize(
    ("kind", "trainable", "expected"),
    [
        ("lane", "digits", 7),
        ("trial", "digits", 1),
        ("lane", "alone.py:Alone", 1),
        ("trial", "alone.py:Alone", 1),
        ("lane", "loops.py:loop", 7),
        ("lane", "loops.py:connects", 1),
        ("lane", "loops.py:main", 1),
    ],
)
def test_trials_per_lane_by_sweep_and_trainable(
    kind: str, trainable: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alone.py").write_text(CODE)
    (tmp_path / "loops.py").write_text(LOOPS)
    monkeypatch.chdir(tmp_path)
    resources = ResourcesSpec(isolation=kind, max_trials_per_lane=7)
    assert trials_per_lane(resources, trainable) == expected


def test_trials_per_lane_is_unlimited_by_default() -> None:
    assert trials_per_lane(ResourcesSpec(), "digits") is None
