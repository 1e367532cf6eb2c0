"""Only one module of `tuning` uses the test split."""

from __future__ import annotations

import ast
from pathlib import Path

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
        "trainables/data/splits.py",
        "trainables/data/stage/files.py",
        "trainables/data/stage/prepare.py",
        "trainables/digits/task.py",
        "trainables/data/images/sources.py",
        "trainables/sft/task.py",
    }
    assert found == {"tuning/evaluation/scoring.py", *data}
