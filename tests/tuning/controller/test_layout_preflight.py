"""Layouts that do not fit a sweep are refused, each with its line of the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from search_spaces.errors import UserError
from search_spaces.layout import Layout
from search_spaces.loading.sweep_file import load_sweep
from trainables.registry import resolve
from tuning.controller.preflight.checks import preflight
from tuning.controller.preflight.trainables import layout_problems

SWEEPS = Path(__file__).parents[3] / "search_spaces"


def problems(file: str, *changes: str) -> str:
    with pytest.raises(UserError) as e:
        preflight(load_sweep(SWEEPS / f"{file}.yaml", list(changes)))
    return "\n".join(e.value.problems)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            "layout={dp_shard: 4}",
            "dp_shard 4 gives 4 ranks, and workers is 2; nearest layout: {dp_shard: 2}",
        ),
        ("workers=1", "resources.layout: has no effect with one worker"),
        (
            "workers={min: 2, max: 3}",
            "dp_shard 2 gives 2 ranks, and workers is 3; nearest layout: {dp_replicate: 3}",
        ),
    ],
)
def test_axes_whose_product_is_not_the_workers(change: str, problem: str) -> None:
    changes = ("resources.layout={dp_shard: 2}", f"resources.{change}")
    assert problem in problems("llm", *changes)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("communication={compress: bf16}", "communication: compress bf16: has no effect with"),
        ("optimizer=muon", "optimizer: muon does not work with layout dp_shard 2"),
        ("dtype=float16", "dtype: float16 does not work with layout dp_shard 2"),
    ],
)
def test_what_does_not_work_on_parts_of_a_model(change: str, problem: str) -> None:
    assert problem in problems("llm", "resources.layout=fsdp", f"fixed.{change}")


def test_ring_attention_takes_no_documents() -> None:
    found = problems("llm", "resources.layout={cp: 2, cp_method: ring}", "fixed.packing=documents")
    assert "packing: documents does not work with cp_method ring; use gather" in found


@pytest.mark.parametrize(
    ("workers", "axes", "change", "problem"),
    [
        (2, "tp: 2", "fixed.sequence_length=127", "layout: cp x tp, 2, does not divide sequence_"),
        (4, "cp: 2, tp: 2", "fixed.sequence_length=126", "layout: cp x tp, 4, does not divide"),
        (
            4,
            "pp: 2, tp: 2",
            "fixed.num_layers=2",
            "layout: sequence_parallel does not work with pp",
        ),
        (2, "tp: 2", "fixed.experts={count: 4}", "experts: does not work with layout sequence_par"),
    ],
)
def test_sequences_that_are_not_cut_between_layers(
    workers: int, axes: str, change: str, problem: str
) -> None:
    layout = f"resources.layout={{{axes}, sequence_parallel: true}}"
    size = ("space.batch_size=32", f"resources.workers={workers}")
    assert problem in problems("llm", *size, layout, change)


def test_family_that_does_not_cut_sequences(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "n_layer": 4}')
    config = {"model_name_or_path": str(tmp_path), "batch_size": 8}
    found = layout_problems(resolve("causal_lm"), config, Layout(tp=2, sequence_parallel=True))
    assert found == [
        (("model_name_or_path",), "gpt2 does not work with layout sequence_parallel"),
    ]
    own = resolve("tests.trainables.parallel.own:Wide")
    found = layout_problems(own, {}, Layout(tp=2, sequence_parallel=True))
    assert found == [((), f"{own.name} does not follow sequence_parallel")]


def test_compile_where_ranks_share_layers() -> None:
    changes = ["resources.layout=fsdp", "fixed.compile=true"]
    preflight(load_sweep(SWEEPS / "llm.yaml", changes))
    found = problems("llm", "resources.layout={tp: 2}", "fixed.compile=true")
    assert "compile: True does not work with layout tp 2" in found


@pytest.mark.parametrize(
    ("workers", "changes", "problem"),
    [
        (4, ["pp=2", "cp=2"], "pp 2 does not work with cp 2; nearest layout that fits: {"),
        (3, ["cp=3"], "cp 3 does not divide sequence_length, 128; nearest layout that fits: {"),
        (3, ["tp=3"], "tp 3 does not divide num_heads, 4; nearest layout that fits: {"),
        (
            6,
            ["tp=2", "dp_shard=3"],
            "3 data-parallel ranks do not divide batch_size, 32; nearest layout that fits: {",
        ),
    ],
)
def test_sizes_that_ranks_cannot_share(workers: int, changes: list[str], problem: str) -> None:
    axes = [f"resources.layout.{change}" for change in changes]
    found = problems("llm", f"resources.workers={workers}", "space.batch_size=32", *axes)
    assert f"resources.layout: {problem}" in found


@pytest.mark.parametrize(
    ("workers", "axes", "problem"),
    [
        (3, "{pp: 3, microbatches: 4}", "pp 3 (1f1b) has 3 stages, and num_layers is 2; nearest"),
        (
            4,
            "{pp: 2, dp_shard: 2, schedule: interleaved}",
            "pp 2 (interleaved) has 4 stages, and num_layers is 2; nearest",
        ),
        (
            4,
            "{pp: 2, dp_shard: 2, schedule: zero_bubble}",
            "schedule zero_bubble does not work with data-parallel axes; take interleaved",
        ),
        (
            2,
            "{pp: 2, microbatches: 5}",
            "5 microbatches do not divide the 32 samples of a data-parallel rank; nearest layout"
            " that fits: {pp: 2, microbatches: 4}",
        ),
        (
            2,
            "{pp: 2, microbatches: 1}",
            "schedule 1f1b takes a microbatch for each of 2 stages, got 1; nearest layout that"
            " fits: {pp: 2, microbatches: 2}",
        ),
    ],
)
def test_stages_and_microbatches_that_do_not_fit(workers: int, axes: str, problem: str) -> None:
    layers = 4 if "zero_bubble" in axes else 2
    size = (f"fixed.num_layers={layers}", "space.batch_size=32", f"resources.workers={workers}")
    assert f"resources.layout: {problem}" in problems("llm", *size, f"resources.layout={axes}")


@pytest.mark.parametrize(
    ("file", "change", "problem"),
    [
        ("llm", "fixed.micro_batch_size=2", "micro_batch_size: 2 does not work with layout pp 2"),
        ("sft", "fixed.eval_answers=3", "eval_answers: 3 does not work with layout pp 2"),
    ],
)
def test_what_does_not_work_on_stages(file: str, change: str, problem: str) -> None:
    axes = ("resources.workers=2", "resources.layout={pp: 2}")
    assert problem in problems(file, *axes, change)


EXPERTS = "fixed.experts={count: 6}"


@pytest.mark.parametrize(
    ("workers", "axes", "change", "problem"),
    [
        (
            4,
            "{dp_shard: 4, ep: 4}",
            EXPERTS,
            "layout: ep 4 does not divide experts.count, 6; nearest layout that fits: "
            "{dp_shard: 4, ep: 2}",
        ),
        (
            4,
            "{dp_replicate: 2, dp_shard: 2, ep: 4}",
            EXPERTS,
            "layout: ep 4 does not divide dp_shard x cp x tp, 2; nearest layout: "
            "{dp_replicate: 2, dp_shard: 2, ep: 2}",
        ),
        (
            2,
            "{dp_shard: 2, ep: 2}",
            "fixed.num_layers=2",
            "layout: ep 2 has no effect without experts; nearest layout that fits: {dp_shard: 2}",
        ),
        (
            8,
            "{pp: 2, dp_shard: 4, ep: 4}",
            EXPERTS,
            "layout: ep 4 does not divide experts.count, 6; nearest layout that fits: "
            "{pp: 2, dp_shard: 4, ep: 2}",
        ),
    ],
)
def test_experts_that_ranks_cannot_share(
    workers: int, axes: str, change: str, problem: str
) -> None:
    size = ("space.batch_size=32", f"resources.workers={workers}", f"resources.layout={axes}")
    assert problem in problems("llm", *size, change)


def test_ranks_that_gather_experts_divide_their_sizes() -> None:
    config = {"experts": {}, "hidden_size": 96, "num_heads": 6, "intermediate_size": 98}
    layout = Layout(dp_shard=16, ep=2)
    ((_, found),) = layout_problems(resolve("causal_lm"), config, layout)
    expected = "8 ranks with parts of each expert do not divide 2 x intermediate_size, 196; nearest"
    assert found.startswith(expected)
    assert layout_problems(resolve("causal_lm"), config, Layout(dp_shard=16, ep=4)) == []


@pytest.mark.parametrize("axis", ["tp", "pp"])
def test_adapter_needs_all_layers(axis: str) -> None:
    config = {"pretrain": {"num_heads": 4}, "lora": {}, "eval_answers": 0}
    ((path, found),) = layout_problems(resolve("sft"), config, Layout(**{axis: 2}))  # type: ignore[arg-type]
    assert path == ("lora",)
    assert found.endswith(f"does not work with layout {axis} 2")


def test_rules_of_the_model_to_begin_with(tmp_path: Path) -> None:
    shape = {"model_type": "mixtral", "hidden_size": 96, "intermediate_size": 98}
    shape |= {"num_hidden_layers": 2, "num_attention_heads": 6, "num_local_experts": 4}
    (tmp_path / "config.json").write_text(json.dumps(shape))
    saved = {"model_name_or_path": str(tmp_path)}
    ((_, found),) = layout_problems(resolve("sft"), saved, Layout(dp_shard=4, tp=2))
    assert found.startswith("8 ranks with parts of each expert do not divide 2 x intermediate_size")
    shape |= {"model_type": "mistral", "sliding_window": 64}
    (tmp_path / "config.json").write_text(json.dumps(shape))
    ((_, found),) = layout_problems(resolve("sft"), saved, Layout(cp=2))
    assert found == "layers that attend to a window do not work with cp 2"
    first = {"pretrain": {"experts": {}, "num_heads": 4}}
    ((path, found),) = layout_problems(resolve("sft"), first, Layout(tp=2, sequence_parallel=True))
    assert (path, found) == (("experts",), "does not work with layout sequence_parallel")


def test_other_families_have_no_stages(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "n_layer": 4}')
    config = {"model_name_or_path": str(tmp_path), "batch_size": 8}
    found = layout_problems(resolve("causal_lm"), config, Layout(pp=2))
    assert found == [(("model_name_or_path",), "gpt2 does not work with layout pp 2")]


def test_gradients_that_fsdp_sends() -> None:
    axes = ["resources.workers=4", "resources.layout={dp_replicate: 2, tp: 2}"]
    found = problems("llm", *axes, "fixed.communication={compress: fp16}")
    assert "compress fp16: has no effect with layout {dp_replicate: 2, tp: 2}" in found


def test_trainable_that_does_not_share_its_model() -> None:
    found = problems("digits", "resources.workers=2", "resources.layout=fsdp")
    assert "resources.layout: digits follows dp_replicate only, got dp_shard" in found
    found = problems("distill", "resources.workers=2", "resources.layout={cp: 2}")
    assert "resources.layout: distill follows dp_replicate, dp_shard only, got cp" in found
    found = problems("sft", "resources.workers=2", "resources.layout={dp_shard: 2, ep: 2}")
    assert "follows pp, dp_replicate, dp_shard, cp, tp only, got ep" in found


def test_layouts_that_fit() -> None:
    preflight(load_sweep(SWEEPS / "llm.yaml", ["resources.layout=fsdp"]))
    elastic = ["resources.workers={min: 1, max: 2}", "resources.layout=fsdp"]
    preflight(load_sweep(SWEEPS / "llm.yaml", elastic))
