"""Sweep files for tests: a minimal one, those that ship, and the invalid ones of `bad/`."""

from __future__ import annotations

from pathlib import Path

import search_spaces

BAD_FOLDER = Path(__file__).parent / "bad"
BAD: list[tuple[str, str]] = [
    (path.name, path.with_suffix(".txt").read_text(encoding="utf-8"))
    for path in sorted(BAD_FOLDER.glob("*.yaml"))
]
"""File name in `BAD_FOLDER`, and the expected messages, ending in a newline."""
SHIPPED = sorted(Path(search_spaces.__file__).parent.glob("*.yaml"))
MINIMAL = """\
name: small
trainable: digits
metric: accuracy
space:
  lr: {loguniform: [1e-4, 1e-1]}
  model:
    layers: {randint: [1, 4]}
scheduler: {max_t: 9}
budget: {trials: 8}
"""
