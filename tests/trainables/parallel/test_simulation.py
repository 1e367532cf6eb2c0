"""A simulated rank sends, keeps and needs what a real one does."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from search_spaces.layout import Layout
from search_spaces.spec.layout import LayoutSpec
from tests.trainables.parallel.measured import BEFORE, footprint, measured_file
from tests.trainables.parallel.ranks import LAYOUTS, MODELS, fits
from tests.trainables.parallel.test_layouts import spawn
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.model.objective import NextTokenLoss
from trainables.causal_lm.simulation import simulate
from trainables.parallel.footprint import Traffic, ring
from trainables.registry import resolve

FEW = ("micro/ddp2", "llama/fsdp2", "llama/sequence2", "deep/pp2", "student/fsdp2")
"""The others take longest, and `make layouts` has all."""
PROGRAM = "tests.trainables.parallel.measured"
EXACT = {"dp_replicate", "dp_shard"}
"""Axes on which also the peak is exact; on others a transfer keeps its tensor until it ends."""
NEAR = 0.15
NOT_AUTOMATIC = {"schedule", "reshard_after_forward", "cpu_offload", "cp_method"}
"""Keys of layouts that `auto` does not offer, whose memory is not computed."""


def config_of(case: str) -> Any:
    name, given = MODELS[case.partition("/")[0]]
    return resolve(name).Config.model_validate(given)


def simulated(case: str, world: int, rank: int) -> dict[str, Any]:
    layout = case.partition("/")[2]
    config = config_of(case)
    spec = LayoutSpec.model_validate(LAYOUTS[world][layout])
    return asdict(simulate(config, spec.resolve(world), rank, before=BEFORE))


def check(folder: Path, case: str, world: int) -> None:
    """Each rank of a case, against what it measured."""
    given = LAYOUTS[world][case.partition("/")[2]]
    layout = LayoutSpec.model_validate(given).resolve(world)
    axes = {name for name, size in layout.sizes.items() if size > 1}
    ranks = [json.loads(measured_file(folder, case, rank).read_text()) for rank in range(world)]
    arithmetic = config_of(case).layout_memory(layout, on_gpu=False)
    assert arithmetic is not None
    if not NOT_AUTOMATIC & given.keys():
        assert arithmetic.peak == pytest.approx(max(r["peak"] for r in ranks), rel=NEAR)
    if case.startswith("student"):
        return  # it cannot be simulated
    for rank, real in enumerate(ranks):
        found = simulated(case, world, rank)
        for name in ("activations", "peak"):
            error = 0.0 if axes <= EXACT and not case.startswith("moe") else NEAR
            assert found.pop(name) == pytest.approx(real.pop(name), rel=error, abs=64), (name, rank)
        assert found == real, rank


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measured")
    spawn(folder, 2, FEW, PROGRAM)
    return folder


@pytest.mark.parametrize("case", FEW)
def test_simulated_ranks_are_like_real_ones(two: Path, case: str) -> None:
    check(two, case, 2)


@pytest.mark.layouts
@pytest.mark.timeout(3600)
def test_every_layout(tmp_path: Path) -> None:
    """The language models on each layout of 2 to 4 ranks; of experts, those that are balanced."""
    models = [n for n, (t, c) in MODELS.items() if t == "causal_lm" and "experts" not in c]
    models.append("moe_even")
    for world, layouts in LAYOUTS.items():
        cases = [f"{m}/{n}" for m in models for n in layouts if fits(m, n, world)]
        if world > 1:
            spawn(tmp_path, world, cases, PROGRAM)
            for case in cases:
                check(tmp_path, case, world)


def test_one_process_needs_what_is_simulated(tmp_path: Path) -> None:
    assert simulated("micro/one", 1, 0) == footprint(tmp_path, "micro/one", 0, 1)


def test_activations_are_what_autograd_saves() -> None:
    """Of a deep model on one process: nearly all of the activations wait for the backward pass."""
    from trainables.causal_lm import simulation

    config = CausalLMConfig(num_layers=8, sequence_length=64, batch_size=16)
    saved: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    model = simulation.new_random_model(config)
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        tokens = torch.zeros(16, 65, dtype=torch.int64)
        loss = NextTokenLoss(model, config)(tokens)
    kept = sum(size for place, size in saved.items() if place not in weights)
    assert loss.requires_grad
    assert simulate(config, Layout()).activations == pytest.approx(kept, rel=NEAR)


def test_sft_counts_the_longest_rows(tmp_path: Path) -> None:
    real, found = footprint(tmp_path, "sft/one", 0, 1), simulated("sft/one", 1, 0)
    for kind in ("weights", "gradients", "optimizer"):
        assert found[kind] == real[kind]
    assert found["peak"] >= real["peak"]


def test_ring_algorithms() -> None:
    assert ring("allreduce_", 1000, 4) == Traffic(1500, 6)
    assert ring("_allgather_base_", 1000, 4) == Traffic(750, 3)
    assert ring("send", 1000, 4) == Traffic(1000, 1)
    assert ring("wait_tensor", 1000, 4) == ring("allreduce_", 1000, 1) == Traffic()


def test_large_layout_needs_no_other_ranks() -> None:
    """64 ranks share a model that no one of them could have."""
    config = CausalLMConfig(size="small", num_layers=4, vocab_size=32_000, batch_size=64)
    layout = Layout(pp=2, dp_shard=8, tp=4)
    first, last = (simulate(config, layout, rank) for rank in (0, 32))
    embedding = 32_000 * 768
    blocks = (config.num_parameters or 0) - embedding
    # tied embeddings are on both stages
    assert first.weights == pytest.approx(4 * (blocks / 64 + embedding / 32), rel=0.01)
    assert first.optimizer == pytest.approx(2 * first.weights, rel=0.01)
    assert set(first.traffic) == {"pp", "dp_shard", "tp", "all"}
    assert last.flops > first.flops
