"""The bad sweep files of `bad/`, each beside the exact lines that its user sees."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "bad"
BAD: list[tuple[str, str]] = [
    (path.name, path.with_suffix(".txt").read_text(encoding="utf-8"))
    for path in sorted(FOLDER.glob("*.yaml"))
]
"""File name in FOLDER, and its expected text on stderr, ending in a newline."""
