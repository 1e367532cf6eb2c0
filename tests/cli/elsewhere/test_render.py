"""`tune render`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, Tune

FILE = str(ROOT / "search_spaces" / "llm.yaml")
CLUSTER = "cluster={max_nodes: 2, image: 'example.org/tune:1.0'}"


def test_manifests_are_listed_and_what_follows_is_said(tune: Tune, tmp_path: Path) -> None:
    folder = tmp_path / "k8s"
    done = tune("render", "k8s", FILE, folder, "--set", CLUSTER, "--with", "spot")
    listed = [Path(line) for line in done.out.splitlines()]
    assert {p for p in folder.rglob("*") if p.is_file()} == set(listed)
    said = f"then, with the secrets of {folder / 'README.md'}: kubectl apply -k {folder}"
    assert done.err.splitlines()[-1] == said


@pytest.mark.parametrize("target", ["k8s", "sky"])
def test_file_without_a_cluster_is_a_line(tune: Tune, tmp_path: Path, target: str) -> None:
    done = tune("render", target, FILE, tmp_path / "files", code=2)
    assert "llm.yaml: needs " in done.err
    assert not (tmp_path / "files").exists()
