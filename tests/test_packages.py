"""What is installed is what is there: setuptools is told every package by name."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("search_spaces", "results", "trainables", "tuning")


def test_every_package_is_installed() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    files = [file for room in ROOMS for file in (ROOT / room).rglob("*.py")]
    there = {".".join(file.parent.relative_to(ROOT).parts) for file in files}
    assert set(told) == there
