"""Sweep files for tests: a minimal one, those that ship, and the invalid ones of `bad/`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import search_spaces
from search_spaces.spec.scheduler import SCHEDULERS
from search_spaces.spec.search import SEARCHERS

BAD_FOLDER = Path(__file__).parent / "bad"
NAMES = {"{SEARCHERS}": " or ".join(SEARCHERS), "{SCHEDULERS}": " or ".join(SCHEDULERS)}
"""Placeholders in expected messages, so that a new name changes no file."""


def _expected(path: Path) -> str:
    text = path.with_suffix(".txt").read_text(encoding="utf-8")
    for placeholder, names in NAMES.items():
        text = text.replace(placeholder, names)
    return text


BAD = [(path.name, _expected(path)) for path in sorted(BAD_FOLDER.glob("*.yaml"))]
"""File name in `BAD_FOLDER`, and the expected messages, ending in a newline."""
SHIPPED = sorted(Path(search_spaces.__file__).parent.glob("*.yaml"))
MINIMAL = """\
name: small
trainable: digits
metric: loss
space:
  lr: {loguniform: [1e-4, 1e-1]}
  model:
    layers: {randint: [1, 4]}
scheduler: {max_t: 9}
budget: {trials: 8}
"""
DOMAINS: list[dict[str, list[Any]]] = [
    {"uniform": [-1.5, 2.0]},
    {"quniform": [0.0, 1.0, 0.25]},
    {"quniform": [0.0, 0.3, 0.1]},
    {"loguniform": [1e-5, 1e-1]},
    {"qloguniform": [0.1, 10.0, 0.1]},
    {"randint": [-3, 9]},
    {"qrandint": [8, 128, 8]},
    {"lograndint": [1, 1000]},
    {"qlograndint": [8, 128, 8]},
    {"randn": []},
    {"randn": [-40.0, 0.3]},
    {"qrandn": [0.1, 0.05, 0.15]},
    {"choice": ["a", "[1]", [1], 1, 2.5, None, False]},
    {"choice": [[64, 64], {"kind": "wide", "n": 2}]},
    {"choice": [True, False]},
    {"choice": ["only"]},
    {"ordinal": [16, 32, "many"]},
    {"grid_search": [1, 2, 3]},
]
"""Domains of every kind, with the values that are hard to sample or to store."""
DIGITS = """\
name: digits
trainable: digits
metric: accuracy
mode: max
space: {learning_rate: {uniform: [0.001, 0.1]}}
fixed: {epochs: 3}
scheduler: {name: none}
budget: {trials: 2}
resources: {workers: 1, concurrency: 1}
tracking: {name: none}
"""
"""A short sweep that runs on any machine."""
