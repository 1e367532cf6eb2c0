"""A model learns the same on every layout, and goes on from a checkpoint of any other."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from transformers import AutoModelForCausalLM

from results.checkpoints.commit import newest_intact
from results.checkpoints.shards import (
    MODEL,
    OPTIMIZER,
    has_tensors,
    is_sharded,
    open_tensors,
    whole_models,
)
from results.records.trial import read_reports
from results.trial_paths import TrialPaths
from tests.trainables.local import ROOT, newest_checkpoint, without_timing
from tests.trainables.parallel.ranks import (
    CUT,
    LAYOUTS,
    MODELS,
    STEPS,
    fits,
    folder_of,
    run,
    write_untied,
)
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
ALONE = sorted({f"{case.partition('/')[0]}/one" for case in (*BEGUN, *RESUMED)})


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
        try:
            codes = [rank.wait() for rank in ranks]
        finally:  # after the test's timeout
            for rank in ranks:
                rank.kill()
                rank.wait()
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


def optimizer_state(folder: Path) -> dict[str, npt.NDArray[Any]]:
    """Flat state of an optimizer in a checkpoint, by `<key>:<parameter>`."""
    entries = load_tree(folder, "progress")["optimizer"]["state"]
    state = {f"{key}:{n}": np.ravel(v) for n, entry in entries.items() for key, v in entry.items()}
    spread = open_tensors(folder, OPTIMIZER) if has_tensors(folder, OPTIMIZER) else {}
    return state | {name: np.frombuffer(t.read(), np.float32) for name, t in spread.items()}


def check_tensors(
    found: Mapping[str, npt.NDArray[Any]],
    expected: Mapping[str, npt.NDArray[Any]],
    tolerance: Callable[[npt.NDArray[Any]], float],
) -> None:
    """Compare tensors by name, with the tolerance for each expected one."""
    assert found.keys() == expected.keys()
    for name, known in expected.items():
        atol = tolerance(known)
        np.testing.assert_allclose(found[name], known, rtol=0, atol=atol, err_msg=name)


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
        """The curve of a case up to rounding, and its last weights and state of the optimizer."""
        curve, found = self.curve(expected), self.curve(case)
        assert max(found) == max(curve)
        # AdamW enlarges the rounding of one step in those after it, in many layers more
        scale = 4 if case.startswith("deep/") else 1
        rounding = scale * ROUNDING
        for step, metrics in found.items():
            assert metrics == pytest.approx(curve[step], rel=rounding, abs=rounding), step
        folder, known = self.checkpoint(case), self.checkpoint(expected)
        # AdamW divides gradients by their size: a tenth of an update, where they are near 0
        check_tensors(weights(folder), weights(known), lambda _: scale * 1e-3)
        check_tensors(
            optimizer_state(folder),
            optimizer_state(known),
            lambda tensor: scale * min(ROUNDING, 5e-4 * np.abs(tensor).max()),
        )


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """One case of each kind, on one and two ranks."""
    folder = tmp_path_factory.mktemp("layouts")
    write_untied(folder)
    for case in (*ALONE, "half_micro/one"):
        run(folder, case)
    spawn(folder, 2, [*BEGUN, *RESUMED, "half/gpipe2"])
    for case in RESUMED_ALONE:
        run(folder, case)
    return Results(folder)


@pytest.mark.parametrize("case", [*BEGUN, *RESUMED, *RESUMED_ALONE])
def test_layout_learns_what_one_process_learns(two: Results, case: str) -> None:
    two.check_equal(case, f"{case.partition('/')[0]}/one")


def test_bfloat16_rounds_by_the_size_of_microbatches(two: Results) -> None:
    """Eight of one sample: a pipeline computes what one process does that has the same eight."""
    cases = ("half/gpipe2", "half_micro/one")
    pipeline, alone = (two.curve(case) for case in cases)
    for step, metrics in pipeline.items():
        assert metrics["eval_loss"] == alone[step]["eval_loss"]
        # the sums of losses and norms have another order
        assert metrics == pytest.approx(alone[step], rel=1e-6)
    found, expected = (weights(two.checkpoint(case)) for case in cases)
    assert {n: t.tobytes() for n, t in found.items()} == {
        n: t.tobytes() for n, t in expected.items()
    }


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


PAIRS = {
    "llama": {"one", "fsdp2", "fsdp4", "tp2", "pp2", "cp2", "fsdp2xtp2", "ddp2xpp2"},
    "moe": {
        *("one", "fsdp2", "ep2", "tp2xep2", "pp2"),
        *("fsdp4", "fsdp4xep2", "ddp2xep2", "fsdp2xpp2xep2"),
    },
    "moe_12": {"one", "pp3"},
    "image_classifier": {"one", "fsdp2", "pp2", "pp3", "ddp2xpp2"},
}
"""Layouts of a model of which each is resumed on each."""


def grid() -> list[dict[int, list[str]]]:
    """The cases by number of ranks: those that begin, and those that resume them.

    What is not in `PAIRS` is resumed on `fsdp2`, and resumes it.
    """
    begun = {
        w: [f"{m}/{n}" for m in MODELS for n in of if fits(m, n, w)] for w, of in LAYOUTS.items()
    }
    resumed: dict[int, list[str]] = {w: [] for w in LAYOUTS}
    for model, few in PAIRS.items():
        fitting = [(n, w) for w, of in LAYOUTS.items() for n in of if fits(model, n, w)]
        for (before, _), (name, world) in itertools.product(fitting, fitting):
            if {before, name} <= few or "fsdp2" in (before, name):
                resumed[world].append(f"{model}/{before}>{name}")
    return [begun, resumed]


@pytest.mark.layouts
@pytest.mark.timeout(3600)
def test_all_pairs_of_layouts(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """Each model on each layout, and resumed on others."""
    stages = grid()
    for stage in stages:
        for world, cases in stage.items():
            if world > 1:
                spawn(tmp_path, world, cases)
            else:
                for case in cases:
                    run(tmp_path, case)
    found = Results(tmp_path)
    for case in [case for stage in stages for cases in stage.values() for case in cases]:
        with subtests.test(case=case):
            found.check_equal(case, f"{case.partition('/')[0]}/one")
    parts = (found.checkpoint("llama/tp2xpp2") / "shards").glob("model_*")
    assert len(list(parts)) == 4, "each rank has a part of its stage"
