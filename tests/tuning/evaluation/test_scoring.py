"""Only one module of `tuning` uses the test split, and evaluates equal weights once."""

from __future__ import annotations

import ast
from pathlib import Path

from trainables.base import Split
from trainables.digits.config import Digits, DigitsConfig
from tuning.evaluation.progress import TrainingProgress
from tuning.evaluation.scoring import make_soup_evaluator

ROOT = Path(__file__).parents[3]


def test_only_one_module_uses_the_test_split() -> None:
    """Besides the trainables, which split the data."""
    found = set()
    for room in ("tuning", "results", "trainables"):
        for file in (ROOT / room).rglob("*.py"):
            tree = ast.parse(file.read_bytes())
            for node in ast.walk(tree):
                if isinstance(node, ast.Attribute) and node.attr == "TEST":
                    found.add(file.relative_to(ROOT).as_posix())
    data = {
        "trainables/classifier/dataset.py",
        "trainables/data/splits.py",
        "trainables/data/stage/files.py",
        "trainables/data/stage/prepare.py",
        "trainables/data/tables/files.py",
        "trainables/digits/task.py",
        "trainables/data/images/sources.py",
        "trainables/sft/task.py",
    }
    assert found == {"tuning/evaluation/scoring.py", *data}


class CountedDigits(Digits):
    """Counts its evaluations."""

    evaluations = 0

    def examples(
        self, config: DigitsConfig, weights: Path, split: Split, cache: Path
    ) -> dict[str, list[float]]:
        """See the base class."""
        self.evaluations += 1
        return super().examples(config, weights, split, cache)


def test_equal_weights_are_evaluated_once(tmp_path: Path) -> None:
    config, trainable = DigitsConfig(hidden_units=4), CountedDigits()
    folders = [tmp_path / name for name in ("one", "equal", "other")]
    for folder, seed in zip(folders, (1, 1, 2), strict=True):
        folder.mkdir()
        trainable.initial(config.model_copy(update={"init_seed": seed}), folder, tmp_path)
    lines: list[str] = []
    evaluator = make_soup_evaluator(
        trainable, config, "loss", "min", tmp_path, TrainingProgress(5, lines.append)
    )
    one, equal, other = [evaluator.selection(folder) for folder in folders]
    assert one == equal != other
    assert trainable.evaluations == 2
    assert evaluator.test(folders[0]) != one
    assert [line.split(",")[0] for line in lines] == ["1 of 5", "2 of 5", "3 of 5", "4 of 5"]
