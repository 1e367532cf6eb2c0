"""The test split is read through one door."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_nobody_else_names_the_test_split() -> None:
    """But the trainables, which cut the data, and evaluate what they are asked to."""
    found = set()
    for room in ("tuning", "results", "trainables"):
        for file in (ROOT / room).rglob("*.py"):
            tree = ast.parse(file.read_bytes())
            for node in ast.walk(tree):
                if isinstance(node, ast.Attribute) and node.attr == "TEST":
                    found.add(file.relative_to(ROOT).as_posix())
    data = {"trainables/causal_lm/corpus.py", "trainables/digits/loop.py"}
    assert found == {"tuning/evaluation/test_split.py", *data}
