"""What user code calls in vain is named by `tune plan`, from the table of the documents."""

from __future__ import annotations

from pathlib import Path

import pytest
from ray.tune import Trainable
from ray.tune.context import TuneContext

from trainables.registry import resolve
from trainables.user_code.offered import CONTEXT, OFFERED, REFUSED
from trainables.user_code.ray_tune.session import Context
from tuning.controller.preflight.trainables import code_problems

FUNCTION = """
from ray import tune
from ray.tune import get_context as context

def train(config):
    print(tune.get_context().get_trial_id())
    own = context()
    print(own.get_trial_resources())
    print(tune.get_context().get_world_rank())
    tune.report({"loss": 1.0})
"""
LOOP = """
import ray.train
from ray import tune

def loop(config):
    tune.report({"loss": 1.0})
    ray.train.report({"loss": tune.get_checkpoint()})
"""
CLASS = """
from ray import tune

class Own(tune.Trainable):
    def step(self):
        return {"loss": 1.0, "done": True}

    def log_result(self, result):
        print(result)
"""


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


def methods(table: dict[str, str]) -> set[str]:
    return {name.removeprefix(f"{CONTEXT}.") for name in table if name.startswith(CONTEXT)}


def test_table_has_every_method_of_the_context() -> None:
    offered, refused = (methods(table["Ray Tune function"]) for table in (OFFERED, REFUSED))
    assert offered == public(Context)
    assert refused == public(TuneContext) - offered
    own = {name for name in REFUSED["Ray Tune class"] if "." not in name}
    assert own <= public(Trainable)


@pytest.mark.parametrize(
    ("code", "name", "wanted"),
    [
        (
            FUNCTION,
            "train",
            ["8: ray.tune.get_context().get_trial_resources ", "9: ray.tune.get_c"],
        ),
        (LOOP, "loop", ["6: ray.tune.report ", "7: ray.tune.get_checkpoint "]),
        (CLASS, "Own", [" log_result() is never called"]),
    ],
)
def test_refused_calls_are_named(tmp_path: Path, code: str, name: str, wanted: list[str]) -> None:
    (tmp_path / "own.py").write_text(code)
    found = code_problems(resolve(f"{tmp_path}/own.py:{name}"))
    assert len(found) == len(wanted)
    for line, text in zip(found, wanted, strict=True):
        assert f"own.py:{text}" in line
