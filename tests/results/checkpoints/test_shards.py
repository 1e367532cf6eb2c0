from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from results.checkpoints.commit import Checkpoint, commit, newest_intact
from results.checkpoints.shards import open_tensors, parts_metadata, shard_file, whole_models
from results.trial_paths import TrialPaths
from search_spaces.errors import UserError

WHOLE = {
    "rows": np.arange(35, dtype=np.float32).reshape(7, 5),
    "half": np.arange(24, dtype=np.float16).reshape(2, 3, 4),
    "number": np.array(3.5, dtype=np.float64),
}
CUTS = {
    "rows": [((0, 0), (4, 5)), ((4, 0), (3, 2)), ((4, 2), (3, 3))],
    "half": [((0, 0, 0), (2, 1, 4)), ((0, 1, 0), (2, 2, 4))],
    "number": [((), ())],
}
"""Offset and shape of each rank's block."""


def write_shards(folder: Path) -> None:
    """Write `WHOLE` as three ranks would."""
    for rank in range(3):
        mine = {name: cuts[rank] for name, cuts in CUTS.items() if rank < len(cuts)}
        blocks = {
            name: np.array(
                WHOLE[name][tuple(slice(o, o + n) for o, n in zip(*cut, strict=True))], order="C"
            )
            for name, cut in mine.items()
        }
        places = {name: (WHOLE[name].shape, offset) for name, (offset, _) in mine.items()}
        file = shard_file(folder, "model", rank)
        file.parent.mkdir(parents=True, exist_ok=True)
        save_file(blocks, file, parts_metadata(places))


def test_any_box_is_read_from_the_blocks(tmp_path: Path) -> None:
    write_shards(tmp_path)
    found = open_tensors(tmp_path)
    for name, whole in WHOLE.items():
        assert found[name].shape == whole.shape
        assert found[name].read().tobytes() == whole.tobytes()
    box = found["rows"].read((3, 1), (3, 3))
    assert box.tobytes() == WHOLE["rows"][3:6, 1:4].tobytes()
    assert found["rows"].read((2, 0), (0, 5)).size == 0


def test_a_whole_file_is_read_alike(tmp_path: Path) -> None:
    save_file(WHOLE, tmp_path / "model.safetensors")
    assert open_tensors(tmp_path)["half"].read((1, 0, 2), (1, 3, 2)).tobytes() == (
        WHOLE["half"][1:, :, 2:].tobytes()
    )


@pytest.mark.parametrize("damage", ["missing", "twice", "moved", "metadata"])
def test_parts_that_make_no_whole_are_refused(tmp_path: Path, damage: str) -> None:
    write_shards(tmp_path)
    last = shard_file(tmp_path, "model", 2)
    if damage == "missing":
        last.unlink()
    elif damage == "twice":
        shard_file(tmp_path, "model", 3).write_bytes(last.read_bytes())
    elif damage == "moved":
        save_file(load_file(last), last, parts_metadata({"rows": ((7, 5), (6, 2))}))
    else:
        save_file(load_file(last), last, {"parts": json.dumps({"rows": 7})})
    with pytest.raises(UserError, match=r"do not make a whole|not the file of a rank"):
        open_tensors(tmp_path)


def committed(paths: TrialPaths, step: int) -> Path:
    draft = paths.checkpoints / ".draft"
    write_shards(draft)
    (draft / "config.json").write_text("{}")
    (draft / "rng_0.json").write_text("{}")
    commit(draft, paths.checkpoint(step), step=step)
    return paths.checkpoint(step)


def test_models_of_shards_are_whole_and_verified(tmp_path: Path) -> None:
    paths = TrialPaths(tmp_path / "t0000")
    committed(paths, 1)
    damaged = shard_file(committed(paths, 2), "model", 1)
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    found = newest_intact(paths, whole_models)
    assert isinstance(found, Checkpoint)
    assert found.step == 1
    assert set(found.manifest.files) == {"model.safetensors", "config.json"}
    stored = load_file(found.folder / "model.safetensors")
    assert {name: t.tobytes() for name, t in stored.items()} == {
        name: whole.tobytes() for name, whole in WHOLE.items()
    }
