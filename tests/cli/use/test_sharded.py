"""Commands that read models give the same for checkpoints in shards as for whole ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from results.checkpoints.commit import commit
from results.checkpoints.shards import parts_metadata, shard_file
from results.paths import SweepPaths
from tests.cli.conftest import Tune
from tests.cli.trained import BATCH_NORM, trained

RANKS = 2


@pytest.fixture
def whole(tune: Tune) -> SweepPaths:
    return trained(BATCH_NORM)


@pytest.fixture
def sharded(tune: Tune, whole: SweepPaths) -> SweepPaths:
    """The same sweep, with its checkpoints as two ranks would have written them."""
    paths = SweepPaths(tune.cwd / "other" / whole.name)
    shutil.copytree(whole.root, paths.root)
    for trial in paths.trial_ids():
        for step in paths.trial(trial).checkpoint_steps():
            cut(paths.trial(trial).checkpoint(step), step)
    return paths


def cut(folder: Path, step: int) -> None:
    """Cut the rows of each tensor of a checkpoint's model in two parts."""
    draft = folder.with_name(f".{folder.name}.draft")
    shutil.copytree(folder, draft)
    weights = load_file(draft / "model.safetensors")
    (draft / "model.safetensors").unlink()
    shard_file(draft, "model", 0).parent.mkdir()
    for rank in range(RANKS):
        parts, places = {}, {}
        for name, tensor in weights.items():
            rows = np.array_split(np.arange(len(tensor)), RANKS)[rank] if tensor.ndim else []
            if len(rows):
                parts[name] = tensor[rows]
                places[name] = (tensor.shape, (int(rows[0]), *[0] * (tensor.ndim - 1)))
            elif rank == 0:
                parts[name], places[name] = tensor, (tensor.shape, (0,) * tensor.ndim)
        save_file(parts, shard_file(draft, "model", rank), parts_metadata(places))
    commit(draft, folder, step=step)


def test_models_in_shards_are_averaged_and_exported_alike(
    tune: Tune, whole: SweepPaths, sharded: SweepPaths
) -> None:
    said, soups, exports = [], [], []
    for paths in (whole, sharded):
        sweep = str(paths.root)
        said.append(tune("average", sweep, "--top", "3", "--method", "uniform").lines[:4])
        soups.append(load_file(paths.soup("uniform-3") / "model.safetensors"))
        out = tune("export", sweep, "--to", "safetensors").out
        line = next(line for line in out.splitlines() if line.startswith("exported"))
        exports.append(load_file(Path(line.partition(" to ")[2]) / "model.safetensors"))
    assert said[0] == said[1]
    for mine, theirs in (soups, exports):
        assert {n: t.tobytes() for n, t in mine.items()} == {
            n: t.tobytes() for n, t in theirs.items()
        }
