"""What is installed, and how much of it may be imported at once."""

from __future__ import annotations

import tomllib
from pathlib import Path

from setuptools import find_namespace_packages

ROOT = Path(__file__).parents[1]
PACKAGES = ("search_spaces", "results", "trainables", "tuning")


def test_every_package_is_installed() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    kinds = ("*.py", "*.yaml", "*.js")  # a folder may have data alone
    files = [file for p in PACKAGES for kind in kinds for file in (ROOT / p).rglob(kind)]
    folders = {folder for file in files for folder in file.relative_to(ROOT).parents}
    there = {".".join(folder.parts) for folder in folders if folder.parts}
    found = find_namespace_packages(str(ROOT), include=told["packages"]["find"]["include"])
    assert there <= set(found)  # more: folders of an older commit, without files of the project


def test_packages_are_typed_for_their_users() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    for package in PACKAGES:
        assert (ROOT / package / "py.typed").is_file()
        assert "py.typed" in told["package-data"][package]
