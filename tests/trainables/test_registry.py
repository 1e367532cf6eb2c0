import sys
from pathlib import Path

import pytest

from search_spaces.errors import UserError
from trainables.registry import resolve, resolve_again
from tuning.controller.preflight.trainables import worker_problems


def test_resolve_refuses_an_unknown_name() -> None:
    with pytest.raises(
        UserError, match=r"unknown trainable 'causal_ml' .did you mean 'causal_lm'?"
    ):
        resolve("causal_ml")


def test_resolve_imports_a_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own.py").write_text(
        "from trainables.base import Trainable, TrainableConfig\n"
        "class OwnConfig(TrainableConfig):\n    x: float = 1.0\n"
        "class Own(Trainable):\n    Config = OwnConfig\n"
        "    def train(self, config, worker): ...\n"
        "    def evaluate(self, config, weights, split, cache): return {}\n"
        "class Other: ...\n"
        "class Half(Trainable):\n    def train(self, config, worker): ...\n"
    )
    own = resolve("own.py:Own")
    assert own.name == "own.py:Own"
    assert own.Config.problems({"x": 2}) == []
    assert own.Config.problems({"y": 2})[0][0] == ("y",)
    assert set(own.source()) == {"own.py"}
    assert worker_problems(own, {}, [1, 2])[0][0] == ()
    with pytest.raises(UserError, match="does not derive from Trainable"):
        resolve("own.py:Other")
    with pytest.raises(UserError, match=r"own.py:Half: the class has no evaluate\(\)"):
        resolve("own.py:Half")


def test_resolve_again_parses_a_script_once_for_each_version(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text("def train(config):\n    pass\n")
    name = f"{script}:train"
    first = resolve_again(name)
    assert resolve_again(name) is first
    script.write_text("def other(config):\n    pass\n")
    with pytest.raises(UserError, match="has no function 'train'"):
        resolve_again(name)


def test_source_follows_imports_within_the_package() -> None:
    source = resolve("digits").source()
    assert {"digits/task.py", "training/run.py", "worker.py"} <= set(source)
    assert not [name for name in source if name.startswith(("launch/", "causal_lm/"))]
