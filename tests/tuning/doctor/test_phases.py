"""The phases of the head and of a single worker, without Ray."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from search_spaces.errors import UserError
from tuning.controller.resources.placement import Node, compute_placement
from tuning.doctor import phases
from tuning.doctor.findings import find
from tuning.doctor.head import cache_model, consolidate, discover, rehearse
from tuning.doctor.network import rounds
from tuning.doctor.settings import (
    Measured,
    RehearsalTask,
    Settings,
    make_settings,
    read_environment,
)
from tuning.doctor.worker import run_phases

CPU = torch.device("cpu")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = make_settings(read_environment({}), None, [], tmp_path, 1, 0.0)
    made.worker_checkpoints.mkdir(parents=True)
    return made


def task(settings: Settings, *files: Path) -> RehearsalTask:
    short = replace(settings, learning_rate=1e-2, max_seq_length=32)
    return RehearsalTask(short, tuple(map(str, files)), 0.0)


def test_model_is_cached_once(settings: Settings) -> None:
    cache_model(settings)
    weights = settings.base_model / "model.safetensors"
    before = weights.stat()
    cache_model(settings)
    assert weights.stat() == before
    assert sorted(f.name for f in settings.base_model.iterdir())[-2:] == [
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_local_model_is_cached_with_its_tokenizer(settings: Settings, tmp_path: Path) -> None:
    cache_model(settings)
    named = read_environment({"MODEL_NAME": str(settings.base_model)})
    other = make_settings(named, None, [], tmp_path / "other", 1, 0.0)
    cache_model(other)
    first, second = (load_file(s.base_model / "model.safetensors") for s in (settings, other))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert (other.base_model / "tokenizer.json").exists()


def test_no_file_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    named = read_environment({"DATA_DIR": str(tmp_path)})
    with pytest.raises(UserError, match=r"no Parquet file matches .*/c4/\*\.parquet; set PARQUET"):
        discover(make_settings(named, None, [], tmp_path, 1, 0.0))


def test_storage_that_cannot_be_written_ends_the_rehearsal(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    named = read_environment({"CHECKPOINT_DIR": str(tmp_path / "file" / "below")})
    settings = make_settings(named, None, [], tmp_path, 1, 0.0)
    placement = compute_placement(settings.resources, [Node(1, 0)])
    found = rehearse(settings, placement, tmp_path, None, lambda line: None)
    assert found.workers == []
    (finding,) = find(found, None)
    assert finding.breaks
    assert f"storage {tmp_path}/file/below: cannot create a folder there" in finding.what


def run(task: RehearsalTask, tmp_path: Path) -> Measured:
    """All phases of a worker that is alone in its process group, as `at` it posts."""
    measured: Measured = {"errors": {}, "posted": []}
    store = f"file://{tmp_path / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    try:
        run_phases(phases.State(task, 0, 1, CPU), measured, measured["posted"].append)
    finally:
        dist.destroy_process_group()
    return measured


@pytest.mark.filterwarnings("ignore:.*barrier.*:UserWarning")
def test_worker_measures_every_phase(settings: Settings, tmp_path: Path) -> None:
    cache_model(settings)
    found = run(task(settings, *discover(settings)), tmp_path)
    assert found["errors"] == {}
    assert found["posted"] == [phase.__name__ for phase in phases.PHASES]
    times = {f"{phase.__name__}_time" for phase in phases.PHASES}
    assert times <= found.keys()
    assert found["parquet_rows"] == 200
    assert found["checkpoint_same"]
    assert found["all_reduce_right"]
    assert found["loss"] > 4
    consolidate(settings)
    model = AutoModelForCausalLM.from_pretrained(settings.final_model)
    trained = load_file(phases.checkpoint_file(phases.State(task(settings), 0, 1, CPU)))
    start = load_file(settings.base_model / "model.safetensors")
    name, weights = next(iter(trained.items()))
    assert torch.equal(model.state_dict()[name], weights)
    assert not torch.equal(start[name], weights)


@pytest.mark.filterwarnings("ignore:.*barrier.*:UserWarning")
def test_failed_phase_leaves_out_only_what_needs_it(settings: Settings, tmp_path: Path) -> None:
    cache_model(settings)
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 is not enough")
    found = run(task(settings, broken, tmp_path / "gone.parquet"), tmp_path)
    assert found["errors"].keys() == {"parquet_load"}
    assert "training_simulation_time" not in found
    assert found["checkpoint_same"]
    assert list(found["unreadable"]) == [str(broken)]
    assert found["missing"] == [str(tmp_path / "gone.parquet")]


@pytest.mark.parametrize("size", [1, 2, 5, 20])
def test_rounds_have_every_pair_once(size: int) -> None:
    made = list(rounds(size))
    pairs = [pair for pairs in made for pair in pairs]
    assert sorted(pairs) == list(itertools.combinations(range(size), 2))
    for one in made:
        busy = [rank for pair in one for rank in pair]
        assert len(busy) == len(set(busy))


def test_digest_sees_names_sizes_and_content(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    seen = set()
    for content in (b"one", b"two", b"three", None):
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_bytes(content)
        seen.add(phases.digest([str(file)], [str(file)]))
    assert len(seen) == 4
