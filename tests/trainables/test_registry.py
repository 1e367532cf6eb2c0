import sys
from pathlib import Path
from typing import Any

import pytest

from search_spaces.errors import UserError
from trainables.registry import (
    TRAINABLES,
    check_config,
    checkpoint_bytes,
    is_foreign,
    resolve,
    resolve_paths,
)
from trainables.user_code.loader import canonical, load


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with a script, what it imports from beside it, and a package."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_helper.py").write_text("FACTOR = 3\n")
    (tmp_path / "train.py").write_text(
        "from my_helper import FACTOR\n"
        "def train_loop(config):\n    return FACTOR * config['x']\n"
        "def other(config):\n    pass\n"
        "LIMIT = 1\n"
    )
    (tmp_path / "loud.py").write_text("raise RuntimeError('ran')\ndef loop(config):\n    pass\n")
    (tmp_path / "broken.py").write_text("def loop(:\n")
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").write_text("raise RuntimeError('ran')\n")
    (tmp_path / "my_package" / "loops.py").write_text("def loop(config):\n    return 1\n")
    return tmp_path


@pytest.mark.parametrize("name", TRAINABLES)
def test_every_hyperparameter_is_described(name: str) -> None:
    for field in resolve(name).Config.model_fields.values():
        assert field.description


def test_an_unknown_trainable_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"unknown trainable 'causal_ml' .did you mean 'causal_lm'?"
    ):
        resolve("causal_ml")


@pytest.mark.parametrize(
    ("config", "path", "problem"),
    [
        (
            {"learning_rat": 1},
            ("learning_rat",),
            "unknown hyperparameter 'learning_rat' (did you mean 'learning_rate'?)",
        ),
        (
            {"data": {"max_byte": 1}},
            ("data", "max_byte"),
            "unknown hyperparameter 'max_byte' (did you mean 'max_bytes'?)",
        ),
        ({"hidden_size": "wide"}, ("hidden_size",), "must be a whole number, got 'wide'"),
        ({"hidden_size": 64.5}, ("hidden_size",), "must be a whole number, got 64.5"),
        ({"learning_rate": [1]}, ("learning_rate",), "must be a number, got [1]"),
        ({"learning_rate": 0}, ("learning_rate",), "must be > 0.0, got 0"),
        ({"beta2": 1.0}, ("beta2",), "must be < 1.0, got 1.0"),
        ({"warmup_fraction": 3}, ("warmup_fraction",), "must be <= 1.0, got 3"),
        ({"vocab_size": 3}, ("vocab_size",), "must be >= 257, got 3"),
        ({"dtype": "half"}, ("dtype",), "must be one of float32 or bfloat16, got 'half'"),
        ({"data": 3}, ("data",), "must be a mapping of names to values, got 3"),
        ({"data": {"paths": 3}}, ("data", "paths"), "must be a list, got 3"),
        (
            {"data": {"source": "files"}},
            ("data",),
            "source 'files' needs paths, for example paths: texts/*.txt",
        ),
        (
            {"hidden_size": 65, "num_heads": 5},
            (),
            "hidden_size 65 must be a multiple of 2 x num_heads (num_heads is 5): rotary positions"
            " turn pairs of units",
        ),
        (
            {"model_name_or_path": "gpt2", "num_layers": 3},
            (),
            "num_layers: no effect with model_name_or_path, which has its own;"
            " remove one or the other",
        ),
    ],
)
def test_mistakes_are_said_plainly(
    config: dict[str, Any], path: tuple[str, ...], problem: str
) -> None:
    assert check_config("causal_lm", config) == [(path, problem)]


def test_all_mistakes_come_at_once() -> None:
    assert len(check_config("digits", {"epochs": 0, "optimiser": "sgd", "dropout": 1})) == 3


def test_a_script_is_checked_without_being_run(project: Path) -> None:
    assert is_foreign("loud.py:loop")
    assert check_config("loud.py:loop", {"anything": 1}) == []
    assert check_config("my_package.loops:loop", {}) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("train.py:train_lop", "has no function 'train_lop' .did you mean 'train_loop'?"),
        ("trian.py:train_loop", "no such file .did you mean 'train.py'?"),
        ("broken.py:loop", "broken.py:1: "),
        ("my_package.lops:loop", "no such module"),
        ("my_package.loops:lop", "has no function 'lop' .did you mean 'loop'?"),
    ],
)
def test_a_wrong_name_is_refused(project: Path, name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_config(name, {})


def test_a_script_is_loaded_with_what_lies_beside_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = canonical("train.py:train_loop")
    assert name == f"{project / 'train.py'}:train_loop"
    monkeypatch.chdir("/")
    assert load(name)({"x": 2}) == 6
    with pytest.raises(UserError, match="is neither a function nor a class"):
        load(f"{project / 'train.py'}:LIMIT")


def test_relative_paths_are_anchored(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    config = {
        "data": {"source": "files", "paths": ["a/*.txt", "/b"]},
        "model_name_or_path": "model",
    }
    fixed = resolve_paths("causal_lm", config, tmp_path)
    assert fixed["data"]["paths"] == [f"{tmp_path}/a/*.txt", "/b"]
    assert fixed["model_name_or_path"] == str(tmp_path / "model")
    hub = {"model_name_or_path": "org/name"}
    assert resolve_paths("causal_lm", hub, tmp_path) == hub
    assert resolve_paths("digits", {"epochs": 3}, tmp_path) == {"epochs": 3}


def test_checkpoint_bytes_are_about_right_or_unknown(project: Path) -> None:
    assert checkpoint_bytes("digits", {}) == 12 * (64 * 64 + 64 + 64 * 64 + 64 + 64 * 10 + 10)
    assert checkpoint_bytes("causal_lm", {"model_name_or_path": "gpt2"}) is None
    assert checkpoint_bytes("train.py:train_loop", {}) is None


def test_a_class_of_ones_own_is_a_trainable(project: Path) -> None:
    (project / "own.py").write_text(
        "from trainables.base import Trainable, TrainableConfig\n"
        "class OwnConfig(TrainableConfig):\n    x: float = 1.0\n"
        "class Own(Trainable):\n    Config = OwnConfig\n"
        "    def train(self, config, worker): ...\n"
        "    def evaluate(self, config, weights, split, cache): return {}\n"
        "class Other: ...\n"
        "class Half(Trainable):\n    def train(self, config, worker): ...\n"
    )
    assert not is_foreign("own.py:Own")
    assert is_foreign("train.py:train_loop")
    assert check_config("own.py:Own", {"x": 2}) == []
    assert check_config("own.py:Own", {"y": 2})[0][0] == ("y",)
    with pytest.raises(UserError, match="does not derive from Trainable"):
        resolve("own.py:Other")
    with pytest.raises(UserError, match=r"own.py:Half: the class has no evaluate\(\)"):
        resolve("own.py:Half")
