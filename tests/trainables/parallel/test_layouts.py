"""A model learns the same on every layout, and goes on from a checkpoint of any other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from transformers import AutoModelForCausalLM

from results.checkpoints.commit import newest_intact
from results.checkpoints.shards import MODEL, OPTIMIZER, has_tensors, is_sharded, open_tensors
from results.checkpoints.whole_model import whole_models
from results.records.trial import read_reports
from results.trial_paths import TrialPaths
from tests.trainables.local import ROOT, newest_checkpoint, without_timing
from tests.trainables.parallel.ranks import CUT, LAYOUTS, MODELS, STEPS, fits, folder_of, run
from trainables.base import Split
from trainables.checkpointing.training_state import load_tree
from trainables.parallel.sharded_state import unique_state
from trainables.registry import resolve

ROUNDING = 5e-6
"""Largest difference of a loss."""
BEGUN = (
    "llama/fsdp2",
    "micro/zero2",
    "llama/offload2",
    "own/fsdp2",
    "llama/tp2",
    "llama/sequence2",
    "wide/tp2",
    "documents/cp2",
    "llama/ring2",
    "llama/pp2",
    "moe/ep2",
    "moe/pp2",
    "moe/gpipe2",
    "image_classifier/pp2",
)
RESUMED = (
    "llama/one>fsdp2",
    "llama/fsdp2>fsdp2",
    "own/one>fsdp2",
    "own/fsdp2>fsdp2",
    "llama/fsdp2>tp2",
    "llama/fsdp2>sequence2",
    "documents/one>cp2",
    "llama/fsdp2>pp2",
    "llama/pp2>tp2",
    "moe/one>ep2",
    "moe/ep2>ep2",
    "moe/ep2>fsdp2",
    "moe/ep2>pp2",
    "moe/pp2>ep2",
    "image_classifier/one>pp2",
)
ALONE = (
    "llama/one",
    "documents/one",
    "micro/one",
    "own/one",
    "wide/one",
    "moe/one",
    "image_classifier/one",
)
RESUMED_ALONE = (
    "llama/fsdp2>one",
    "own/fsdp2>one",
    "llama/tp2>one",
    "llama/sequence2>one",
    "documents/cp2>one",
    "llama/pp2>one",
    "moe/ep2>one",
    "image_classifier/pp2>one",
)


def learned(metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics without those that measure time and transfers."""
    timed = ("communication_", "bus_")
    return {k: v for k, v in without_timing(metrics).items() if not k.startswith(timed)}


def spawn(
    folder: Path,
    world: int,
    cases: Sequence[str],
    program: str = "tests.trainables.parallel.ranks",
) -> None:
    """Run cases in so many processes of a program, and wait for them."""
    (folder / f"rendezvous_{world}").unlink(missing_ok=True)
    command = [sys.executable, "-m", program]
    logs = [folder / f"log_{world}_{rank}.txt" for rank in range(world)]
    with ExitStack() as stack:
        files = [stack.enter_context(open(log, "ab")) for log in logs]
        ranks = [
            subprocess.Popen(
                [*command, str(rank), str(world), str(folder), *cases],
                cwd=ROOT,
                stdout=file,
                stderr=file,
            )
            for rank, file in enumerate(files)
        ]
        codes = [rank.wait(timeout=1200) for rank in ranks]
    assert not any(codes), [log.read_text()[-3000:] for log in logs]


def weights(folder: Path) -> dict[str, npt.NDArray[Any]]:
    """Flat weights of a checkpoint by name. In files of whole models, experts have other names."""
    kind = "adapter_model" if has_tensors(folder, "adapter_model") else MODEL
    stored = open_tensors(folder, kind)
    if any(".block_sparse_moe." in name for name in stored):
        auto: Any = AutoModelForCausalLM
        model = unique_state(auto.from_pretrained(folder))
        return {name: t.detach().numpy().reshape(-1) for name, t in model.items()}
    kinds = {"F32": np.float32, "I64": np.int64}
    return {name: np.frombuffer(t.read(), kinds[t.dtype]) for name, t in stored.items()}


class Results:
    """What layouts have made of the models, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def curve(self, case: str) -> dict[int, dict[str, float]]:
        """Metrics by step, without those that measure time."""
        reports = read_reports(TrialPaths(folder_of(self.folder, case)))
        return {r.step: learned(r.metrics) for r in reports}

    def checkpoint(self, case: str) -> Path:
        """Of the last step."""
        return newest_checkpoint(folder_of(self.folder, case)).folder

    def check_equal(self, case: str, expected: str) -> None:
        """The curve of a case up to rounding, and its last weights."""
        curve, found = self.curve(expected), self.curve(case)
        assert max(found) == max(curve)
        for step, metrics in found.items():
            assert metrics == pytest.approx(curve[step], rel=ROUNDING, abs=ROUNDING), step
        self.check_tensors(self.checkpoint(case), self.checkpoint(expected))

    def check_tensors(self, folder: Path, expected: Path) -> None:
        stored, known = weights(folder), weights(expected)
        assert stored.keys() == known.keys()
        for name, tensor in stored.items():
            # AdamW divides gradients by their size: a tenth of an update, where they are near 0
            np.testing.assert_allclose(tensor, known[name], rtol=0, atol=1e-3, err_msg=name)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """One case of each kind, on one and two ranks."""
    folder = tmp_path_factory.mktemp("layouts")
    for case in (*ALONE, "half_micro/one"):
        run(folder, case)
    spawn(folder, 2, [*BEGUN, *RESUMED, "half/pp2"])
    for case in RESUMED_ALONE:
        run(folder, case)
    return Results(folder)


@pytest.mark.parametrize("case", [*BEGUN, *RESUMED, *RESUMED_ALONE])
def test_layout_learns_what_one_process_learns(two: Results, case: str) -> None:
    two.check_equal(case, f"{case.partition('/')[0]}/one")


def test_bfloat16_rounds_by_the_size_of_microbatches(two: Results) -> None:
    """Four of two samples: a pipeline differs from one process only where that has others."""
    pipeline, alone = two.curve("half/pp2"), two.curve("half_micro/one")
    for step, metrics in pipeline.items():
        near = pytest.approx(alone[step], rel=2 * ROUNDING, abs=ROUNDING)  # of the perplexity
        assert metrics == near, step


@pytest.mark.parametrize(("begun", "resumed"), [("llama/fsdp2", "fsdp2"), ("moe/ep2", "ep2")])
def test_same_layout_goes_on_bit_for_bit(two: Results, begun: str, resumed: str) -> None:
    whole, rest = two.curve(begun), two.curve(f"{begun}>{resumed}")
    assert rest == {step: metrics for step, metrics in whole.items() if step > CUT}
    folders = [two.checkpoint(case) for case in (begun, f"{begun}>{resumed}")]
    for kind in ("model", OPTIMIZER):
        first, second = (open_tensors(folder, kind) for folder in folders)
        assert {n: t.read().tobytes() for n, t in first.items()} == {
            n: t.read().tobytes() for n, t in second.items()
        }


@pytest.mark.parametrize(
    "case",
    [
        "llama/fsdp2",
        "llama/tp2",
        "llama/sequence2",
        "wide/tp2",
        "documents/cp2",
        "llama/pp2",
        "moe/ep2",
        "moe/pp2",
        "image_classifier/pp2",
    ],
)
def test_optimizer_is_that_of_one_process(two: Results, case: str) -> None:
    whole = load_tree(two.checkpoint(f"{case.partition('/')[0]}/one"), "progress")["optimizer"]
    found = open_tensors(two.checkpoint(case), OPTIMIZER)
    assert len(found) == sum(map(len, whole["state"].values()))
    for full_name, tensor in found.items():
        key, _, name = full_name.partition(":")
        mine, theirs = np.frombuffer(tensor.read(), np.float32), whole["state"][name][key]
        np.testing.assert_allclose(mine, theirs.reshape(-1), rtol=1e-3, atol=1e-6)


def test_ranks_write_their_own_parts(two: Results) -> None:
    folder = two.checkpoint("llama/fsdp2")
    files = {p.name: p.stat().st_size for p in (folder / "shards").iterdir()}
    kinds = ("model", "optimizer")
    assert set(files) == {f"{kind}_0000{rank}.safetensors" for kind in kinds for rank in (0, 1)}
    assert files["model_00000.safetensors"] < 1.1 * files["model_00001.safetensors"]
    assert not is_sharded(two.checkpoint("llama/fsdp2>one"))


@pytest.mark.parametrize("case", ["llama/fsdp2", "moe/ep2"])
def test_sharded_checkpoint_is_evaluated_like_a_whole_one(two: Results, case: str) -> None:
    paths = TrialPaths(folder_of(two.folder, case))
    found = newest_intact(paths, whole_models)
    assert found is not None
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= set(found.manifest.files)
    trainable = resolve("causal_lm")
    config = trainable.Config.model_validate(MODELS[case.partition("/")[0]][1])
    scores = trainable.evaluate(config, found.folder, Split.SELECTION, two.folder / "cache")
    assert scores["eval_loss"] == pytest.approx(two.curve(case)[STEPS]["eval_loss"])


def test_log_names_the_layouts(two: Results) -> None:
    log = (two.folder / "log_2_0.txt").read_text()
    assert "resumed on another layout: dp_replicate 1 x dp_shard 2" in log
    assert "the checkpoint is of dp_replicate 1 x dp_shard 1" in log


@pytest.mark.layouts
@pytest.mark.timeout(3600)
def test_all_pairs_of_layouts(tmp_path: Path) -> None:
    """Each model on each layout; `llama` and `moe` resumed on each layout from each other."""
    names = {world: list(layouts) for world, layouts in LAYOUTS.items()}
    begun = {
        w: [f"{m}/{n}" for m in MODELS for n in of_world if fits(m, n, w)]
        for w, of_world in names.items()
    }
    pairs = {
        "llama": [n for w, of in names.items() for n in of if fits("llama", n, w)],
        "moe": [
            *("one", "fsdp2", "ep2", "tp2xep2", "pp2"),
            *("fsdp4", "fsdp4xep2", "ddp2xep2", "fsdp2xpp2xep2"),
        ],
        "moe_12": ["one", "pp3"],
        "image_classifier": ["one", "fsdp2", "pp2", "pp3", "ddp2xpp2"],
    }
    resumed = {
        w: [
            f"{m}/{b}>{n}"
            for m, fitting in pairs.items()
            for n in fitting
            if n in of
            for b in fitting
        ]
        for w, of in names.items()
    }
    for stage in (begun, resumed):
        for world, cases in stage.items():
            if world > 1:
                spawn(tmp_path, world, cases)
            else:
                for case in cases:
                    run(tmp_path, case)
    found = Results(tmp_path)
    for case in [case for stage in (begun, resumed) for cases in stage.values() for case in cases]:
        found.check_equal(case, f"{case.partition('/')[0]}/one")
    parts = (found.checkpoint("llama/tp2xpp2") / "shards").glob("model_*")
    assert len(list(parts)) == 4, "each rank has a part of its stage"
