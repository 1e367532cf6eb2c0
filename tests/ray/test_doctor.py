"""`tune doctor` with two real workers, of which one finds a damaged Parquet file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.ray.conftest import ENV, Tune
from trainables.data.corpora.library import write_docstrings


def test_rehearsal_measures_everything_and_names_a_damaged_file(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, checkpoints = tune.cwd / "data", tune.cwd / "checkpoints"
    data.mkdir()
    for name in "abcdefgh":
        write_docstrings(data / f"{name}.parquet", 20)
    damaged = data / "d.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-4])
    environment = {
        "PARQUET_PATH": f"{data}/*.parquet",
        "DATA_DIR": "/nowhere",
        "CHECKPOINT_DIR": str(checkpoints),
        "MODEL_NAME": "tiny",
        "NUM_WORKERS": "2",
        "CONTAINER_NAME": "c4",
        "LEARNING_RATE": "1e-3",
        "HF_TOKEN": "hf_canary",
    }
    for name, value in environment.items():
        monkeypatch.setitem(ENV, name, value)
    out = tune("doctor", "--json", code=1)
    found = json.loads(out)
    assert "hf_canary" not in out
    assert found["settings"]["container_name"] == "c4"
    for finding in found["findings"]:
        assert str(damaged) in finding["what"]
    assert any("cannot be read" in finding["what"] for finding in found["findings"])
    assert {"model_caching_time", "parquet_discovery_time", "launch_time"} <= found["head"].keys()
    assert {"consolidation_time", "tracking_time", "storage_time"} <= found["head"].keys()
    first, second = found["workers"]
    assert [first["rank"], second["rank"]] == [0, 1]
    assert first["digests"] == second["digests"]
    assert first["links"]["1"][1] > 1
    assert first["all_reduce_right"]
    assert second["checkpoint_same"]
    assert abs(first["clock_ahead"][0]) < 1
    for name in ("model_load_time", "checkpoint_save_time", "checkpoint_size_mb", "overall_time"):
        values = found["statistics"][name]
        assert values["min"] <= values["mean"] <= values["max"]
    assert averaged(checkpoints)
    written = json.loads((checkpoints / "model" / "tiny" / "rehearsal.json").read_text())
    assert {"version": 1, **written} == found


def averaged(checkpoints: Path) -> bool:
    """Whether the model is the mean of both workers' checkpoints."""
    of_workers = sorted((checkpoints / "worker_checkpoints" / "tiny").iterdir())
    assert [file.stem for file in of_workers] == ["worker_000_checkpoint", "worker_001_checkpoint"]
    one, other = map(load_file, of_workers)
    mean = load_file(checkpoints / "model" / "tiny" / "model.safetensors")
    return all(torch.allclose(mean[name], (one[name] + other[name]) / 2) for name in one)
