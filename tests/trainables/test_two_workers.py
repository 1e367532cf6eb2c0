import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from results.checkpoints.commit import newest_intact
from results.paths import TrialPaths
from tests.trainables.examples import EXAMPLES
from tests.trainables.local import run_trial
from trainables.base import Split
from trainables.common.training import read_lineage
from trainables.registry import resolve

ROOT = Path(__file__).parents[2]


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
        printed = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], [log.read_text() for log in logs]
    return folder, [json.loads(text) for text in printed]


@pytest.mark.parametrize("name", EXAMPLES)
class TestTwoWorkers:
    def test_resumed_curve_is_the_same_and_only_rank_0_reports(
        self, name: str, trained: tuple[Path, list[dict[str, Any]]]
    ) -> None:
        whole, resumed, _ = trained[1][0][name]
        assert [int(step) for step in whole] == list(EXAMPLES[name].steps)
        assert whole == resumed
        assert trained[1][1][name] == [{}, {}, {}]

    def test_checkpoint_holds_the_generators_of_each_rank(
        self, name: str, trained: tuple[Path, list[dict[str, Any]]]
    ) -> None:
        found = newest_intact(TrialPaths(trained[0] / f"{name}_cut"))
        assert found is not None
        files = found.manifest.files
        assert {"rng_0.json", "rng_1.json", "model.safetensors", "lineage.json"} <= set(files)
        assert files["rng_0.safetensors"] != files["rng_1.safetensors"]

    def test_reported_metrics_equal_those_of_one_process(
        self, name: str, trained: tuple[Path, list[dict[str, Any]]]
    ) -> None:
        folder, example = trained[0], EXAMPLES[name]
        found = newest_intact(TrialPaths(folder / f"{name}_whole"))
        assert found is not None
        trainable = resolve(name)
        config = trainable.Config.model_validate(example.config)
        judged = trainable.evaluate(config, found.folder, Split.SELECTION, folder / "cache")
        reported = trained[1][0][name][0][str(example.steps[-1])]
        assert judged == pytest.approx({k: reported[k] for k in example.judged}, rel=1e-6)

    @pytest.mark.parametrize("path", ["one then two", "two then one"])
    def test_elastic_resume_learns_the_same(
        self, name: str, path: str, trained: tuple[Path, list[dict[str, Any]]], tmp_path: Path
    ) -> None:
        folder, example = trained[0], EXAMPLES[name]
        alone = run_trial(tmp_path / "alone", name, example.same, cache=folder / "cache").curve
        if path == "one then two":
            curve = {int(step): m for step, m in trained[1][0][name][2].items()}
        else:
            source = TrialPaths(folder / f"{name}_grown").checkpoint(example.steps[1])
            target = TrialPaths(tmp_path / "less").checkpoint(example.steps[1])
            target.parent.mkdir(parents=True)
            target.symlink_to(source)
            curve = run_trial(
                tmp_path / "less", name, example.same, attempt=3, cache=folder / "cache"
            ).curve
        for step, metrics in curve.items():
            assert metrics == pytest.approx(alone[step], rel=1e-4), step

    def test_resume_with_another_number_of_workers(
        self, name: str, trained: tuple[Path, list[dict[str, Any]]], tmp_path: Path
    ) -> None:
        folder, example = trained[0], EXAMPLES[name]
        last = TrialPaths(folder / f"{name}_cut").checkpoint(example.steps[-1])
        source = TrialPaths(folder / f"{name}_cut").checkpoint(example.steps[0])
        target = TrialPaths(tmp_path).checkpoint(example.steps[0])
        target.parent.mkdir(parents=True)
        target.symlink_to(source)
        channel = run_trial(tmp_path, name, example.config, cache=folder / "cache", attempt=3)
        assert list(channel.curve) == list(example.steps[1:])
        found = newest_intact(TrialPaths(tmp_path))
        assert found is not None
        assert read_lineage(found.folder) == read_lineage(last)
        if name == "federated":  # a client's training does not depend on the rank
            weights = [(f / "model.safetensors").read_bytes() for f in (found.folder, last)]
            assert weights[0] == weights[1]
        if name == "causal_lm":  # no dropout: the same model up to rounding
            two = trained[1][0][name][0][str(example.steps[-1])]["eval_loss"]
            assert channel.reports[-1].metrics["eval_loss"] == pytest.approx(two, rel=1e-4)
