import json
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from results.records.worker_samples import read_samples
from results.trial_paths import TrialPaths
from tests.trainables.examples import EXAMPLES, Example, trainable_of
from tests.trainables.local import ROOT, newest_checkpoint, run_trial
from trainables.base import Split
from trainables.registry import resolve
from trainables.training.checkpoint import read_lineage

Curve = dict[int, dict[str, float]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The folder in which two gloo ranks trained every example, and the output of each rank."""
    folder = tmp_path_factory.mktemp("two")
    command = [sys.executable, "-m", "tests.trainables.two_workers"]
    logs = [folder / f"rank_{rank}.log" for rank in range(2)]
    with ExitStack() as stack:
        files = [stack.enter_context(open(log, "wb")) for log in logs]
        ranks = [
            subprocess.Popen(
                [*command, str(rank), str(folder)], cwd=ROOT, stdout=subprocess.PIPE, stderr=file
            )
            for rank, file in enumerate(files)
        ]
        printed = [rank.communicate(timeout=240)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], [log.read_text() for log in logs]
    return folder, [json.loads(text) for text in printed]


@dataclass(frozen=True)
class Trained:
    """What two ranks made of one example; `folder` also has the cache of all examples."""

    name: str
    folder: Path
    curves: list[Any]

    @property
    def example(self) -> Example:
        return EXAMPLES[self.name]

    def curve(self, trial: int) -> Curve:
        """Rank 0's curve of the whole (0), the resumed (1) or the grown trial (2)."""
        return {int(step): metrics for step, metrics in self.curves[0][trial].items()}

    def paths(self, kind: str) -> TrialPaths:
        return TrialPaths(self.folder / f"{self.name}_{kind}")

    def continue_alone(self, kind: str, step: int, folder: Path, config: dict[str, Any]) -> Curve:
        """Resume in one process, in another folder, from a checkpoint of two ranks."""
        target = TrialPaths(folder).checkpoint(step)
        target.parent.mkdir(parents=True)
        target.symlink_to(self.paths(kind).checkpoint(step))
        return self.train(folder, config, attempt=3)

    def train(self, folder: Path, config: dict[str, Any], **options: Any) -> Curve:
        return run_trial(
            folder, trainable_of(self.name), config, cache=self.folder / "cache", **options
        ).curve


@pytest.fixture(params=EXAMPLES)
def two(request: pytest.FixtureRequest, trained: tuple[Path, list[Any]]) -> Trained:
    folder, ranks = trained
    return Trained(request.param, folder, [curves[request.param] for curves in ranks])


def test_both_ranks_leave_between_two_reports_and_resume_bit_for_bit(
    trained: tuple[Path, list[dict[str, Any]]],
) -> None:
    folder, (first, _) = trained
    assert first["left"][0] == first["causal_lm"][0], "at step 5 of 6; reports are at 2, 4 and 6"
    paths = TrialPaths(folder / "left")
    assert 5 in paths.checkpoint_steps()


def test_every_rank_counts_its_wait_for_gradients(two: Trained) -> None:
    samples = list(read_samples(two.paths("whole"), 1))
    assert {s.rank for s in samples} == {0, 1}
    # a sample of seconds without an update, as on a busy machine, has none
    waited = sum(s.values.get("system/seconds_communication", 0.0) for s in samples)
    worked = sum(s.values.get("system/seconds_compute", 0.0) for s in samples)
    assert 0 < waited < 10 * worked


def test_resumed_curve_is_the_same_and_only_rank_0_reports(two: Trained) -> None:
    assert tuple(two.curve(0)) == two.example.steps
    assert two.curve(1) == two.curve(0)
    assert two.curves[1] == [{}, {}, {}]


def test_checkpoint_holds_the_generators_of_each_rank(two: Trained) -> None:
    files = newest_checkpoint(two.paths("cut").root).manifest.files
    assert {"rng_0.json", "rng_1.json", two.example.weights, "lineage.json"} <= set(files)
    assert files["rng_0.safetensors"] != files["rng_1.safetensors"]


def test_reported_metrics_equal_those_of_one_process(two: Trained) -> None:
    trainable, weights = (
        resolve(trainable_of(two.name)),
        newest_checkpoint(two.paths("whole").root).folder,
    )
    config = trainable.Config.model_validate(two.example.config)
    scores = trainable.evaluate(config, weights, Split.SELECTION, two.folder / "cache")
    reported = two.curve(0)[two.example.steps[-1]]
    assert scores == pytest.approx({k: reported[k] for k in two.example.judged}, rel=1e-6)


@pytest.mark.parametrize("path", ["one then two", "two then one"])
def test_elastic_resume_learns_the_same(two: Trained, path: str, tmp_path: Path) -> None:
    config = two.example.same
    alone = two.train(tmp_path / "alone", config)
    if path == "one then two":
        curve = two.curve(2)
    else:
        curve = two.continue_alone("grown", two.example.steps[1], tmp_path / "less", config)
    for step, metrics in curve.items():
        assert metrics == pytest.approx(alone[step], rel=1e-4), step


def test_resume_with_another_number_of_workers(two: Trained, tmp_path: Path) -> None:
    first, *rest = two.example.steps
    curve = two.continue_alone("cut", first, tmp_path, two.example.config)
    assert list(curve) == rest
    found = newest_checkpoint(tmp_path).folder
    last = two.paths("cut").checkpoint(rest[-1])
    assert read_lineage(found) == read_lineage(last)
    if two.name == "federated":  # a client's training does not depend on the rank
        weights = [(folder / "model.safetensors").read_bytes() for folder in (found, last)]
        assert weights[0] == weights[1]
    if two.name in ("causal_lm", "sft"):  # no dropout: the same model up to rounding
        expected = two.curve(0)[rest[-1]]["eval_loss"]
        assert curve[rest[-1]]["eval_loss"] == pytest.approx(expected, rel=1e-4)
