"""The contract of every registered trainable; a new one needs its entry in `examples.py`."""

from __future__ import annotations

import runpy
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from results.averaging import average, make_method
from results.averaging.soup.candidates import WEIGHTS
from results.checkpoints.commit import verify
from results.export.exportable import Exportable
from results.export.verify import RUNTIMES
from results.trial_paths import TrialPaths
from tests.trainables.examples import BOOSTED, EXAMPLES, Example, trainable_of
from tests.trainables.local import RecordingChannel, newest_checkpoint, run_trial
from trainables.base import Split, Trainable
from trainables.config import TrainableConfig
from trainables.job import Answer
from trainables.registry import TRAINABLES, resolve
from trainables.runtime.seeding import SETTINGS
from trainables.training.checkpoint import read_lineage

SEED = 7


@dataclass(frozen=True)
class Run:
    """A whole trial with `SEED`; tests only read it.

    Attributes:
        channel: has its reports.
        folder: its last checkpoint.
        before, after: the process's global state.
    """

    channel: RecordingChannel
    folder: Path
    before: list[object]
    after: list[object]


def global_state() -> list[object]:
    return [torch.get_rng_state().tolist(), *(s.read() for s in SETTINGS.values())]


@dataclass(frozen=True)
class Case:
    """A trainable with its example, trained in folders below `folder`."""

    name: str
    folder: Path
    cache: Path
    runs: dict[str, Run]

    @property
    def example(self) -> Example:
        return (EXAMPLES | BOOSTED)[self.name]

    @property
    def trainable(self) -> Trainable[Any]:
        return resolve(trainable_of(self.name))

    @property
    def config(self) -> TrainableConfig:
        return self.trainable.Config.model_validate(self.example.config)

    def train(
        self, label: str, config: dict[str, Any] | None = None, **options: Any
    ) -> RecordingChannel:
        given = config or self.example.config
        return run_trial(
            self.folder / label, trainable_of(self.name), given, cache=self.cache, **options
        )

    @property
    def run(self) -> Run:
        """The trial that the tests of a trainable share."""
        if self.name not in self.runs:
            folder, before = self.cache / "runs" / self.name, global_state()
            options: dict[str, Any] = {"cache": self.cache, "seed": SEED}
            name = trainable_of(self.name)
            channel = run_trial(folder, name, self.example.config, **options)
            newest = newest_checkpoint(folder).folder
            self.runs[self.name] = Run(channel, newest, before, global_state())
        return self.runs[self.name]

    def whole(self, weights: Path) -> Path:
        """A folder with the weights of a checkpoint only, without an adapter: as for averages."""
        if self.name in BOOSTED:
            return weights
        folder = self.folder / f"{weights.parents[1].name}-whole"
        folder.mkdir()
        if self.example.weights == WEIGHTS:
            shutil.copy(weights / WEIGHTS, folder)
        else:
            self.trainable.export_hf(self.config, weights, folder, self.cache)
        return folder

    def evaluate(self, weights: Path, split: Split) -> dict[str, float]:
        return self.trainable.evaluate(self.config, weights, split, self.cache)


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    return {}


@pytest.fixture(params=EXAMPLES)
def case(request: pytest.FixtureRequest, tmp_path: Path, cache: Path, runs: dict[str, Run]) -> Case:
    return Case(request.param, tmp_path, cache, runs)


def plain_transformers(exported: Path, model: Exportable) -> list[torch.Tensor]:
    """What the runtime of `tune export --to hf` computes for the examples, in this process."""
    given = {str(i): inputs.numpy() for i, inputs in enumerate(model.examples)}
    files = [exported.with_name(name) for name in ("inputs.npz", "outputs.npz")]
    np.savez(files[0], **given)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["", str(exported), *map(str, files)])
        runpy.run_path(str(RUNTIMES / "run_transformers.py"))
    with np.load(files[1]) as found:
        return [torch.from_numpy(found[k]) for k in given]


def test_every_trainable_has_an_example() -> None:
    assert {trainable_of(name) for name in EXAMPLES | BOOSTED} == set(TRAINABLES)


@pytest.mark.parametrize("case", EXAMPLES | BOOSTED, indirect=True)
class TestTrainable:
    def test_unknown_keys_are_refused(self, case: Case) -> None:
        with pytest.raises(ValidationError, match="no_such_key"):
            case.trainable.Config.model_validate({**case.example.config, "no_such_key": 1})

    @pytest.mark.parametrize("wrong", [5, "five", [5], {"selection": 5}])
    def test_metrics_of_a_wrong_configuration_have_a_name(self, case: Case, wrong: Any) -> None:
        """It is refused for itself, with its line."""
        for key in set(case.trainable.Config.model_fields) - {"task"}:
            assert case.trainable.reported_metrics({key: wrong})

    def test_same_seed_gives_the_same_curve_in_one_process(self, case: Case) -> None:
        first, other, third = case.run.channel, case.train("u", seed=8), case.train("t", seed=SEED)
        assert tuple(first.curve) == case.example.steps
        assert first.curve == third.curve
        known = case.trainable.reported_metrics(case.example.config)
        assert {name for r in first.reports for name in r.metrics} <= set(known)
        assert first.curve != other.curve
        losses = [metrics[case.example.learned] for metrics in first.curve.values()]
        assert losses[-1] < losses[0]

    def test_stopped_trial_resumes_bit_for_bit(self, case: Case) -> None:
        whole = case.run
        stop, *rest = case.example.steps
        stopped = case.train("cut", channel=RecordingChannel({stop: Answer.STOP}), seed=SEED)
        assert list(stopped.curve) == [stop]
        torch.rand(3)  # the process does something else in between
        resumed = case.train("cut", attempt=2, seed=SEED)
        assert list(resumed.curve) == rest
        assert {**stopped.curve, **resumed.curve} == whole.channel.curve
        files = [
            verify(f).files for f in (whole.folder, newest_checkpoint(case.folder / "cut").folder)
        ]
        assert files[0][case.example.weights] == files[1][case.example.weights]

    def test_checkpoint_evaluates_to_the_reported_metrics(self, case: Case) -> None:
        found, last = verify(case.run.folder), case.run.channel.reports[-1]
        assert found.step == last.step == case.example.steps[-1]
        assert case.example.weights in found.files
        scores = case.evaluate(case.run.folder, Split.SELECTION)
        assert scores == {k: last.metrics[k] for k in case.example.judged}
        whole = case.whole(case.run.folder)
        assert case.evaluate(whole, Split.SELECTION) == pytest.approx(scores, rel=1e-5)
        test = case.evaluate(whole, Split.TEST)
        assert test.keys() == scores.keys()
        assert test != scores
        expected = case.config.checkpoint_bytes
        if case.example.weights == WEIGHTS:
            size = (whole / WEIGHTS).stat().st_size
            assert expected == pytest.approx(3 * size, rel=0.2, abs=1000)  # with a header
        else:
            assert expected is None

    def test_mean_of_examples_is_what_evaluate_gives(self, case: Case) -> None:
        weights = case.run.folder
        each, again = (
            case.trainable.examples(case.config, weights, Split.TEST, case.cache) for _ in range(2)
        )
        means = {k: sum(v) / len(v) for k, v in each.items()}
        assert means == pytest.approx(case.evaluate(weights, Split.TEST), rel=1e-5)
        assert case.name in BOOSTED or all(len(values) > 1 for values in each.values())
        assert again == each

    def test_pause_ends_training_with_a_checkpoint(self, case: Case) -> None:
        until = list(case.example.steps[:2])
        channel = RecordingChannel({until[-1]: Answer.PAUSE})
        case.train("t", channel=channel, checkpoint_every=1)
        assert [r.step for r in channel.reports] == until
        assert TrialPaths(case.folder / "t").checkpoint_steps() == until

    def test_global_state_is_restored(self, case: Case) -> None:
        assert case.run.after == case.run.before


class TestWeights:
    def test_average_is_exported_and_plain_transformers_computes_the_same(self, case: Case) -> None:
        for rate in (0.01, 0.02):
            case.train(str(rate), case.example.changed(learning_rate=rate))
        trained = (newest_checkpoint(case.folder / str(rate)).folder for rate in (0.01, 0.02))
        members = [case.whole(folder) for folder in trained]
        soup, exported = case.folder / "soup", case.folder / "exported"
        shutil.copytree(members[0], soup)
        exported.mkdir()
        average([m / WEIGHTS for m in members], soup / WEIGHTS, method=make_method("uniform"))
        case.trainable.recalibrate(case.config, soup, case.cache)
        metric = case.example.judged[-1]
        scores = [case.evaluate(folder, Split.TEST)[metric] for folder in (soup, *members)]
        assert len(set(scores)) == 3
        assert scores[0] < 1.2 * max(scores)
        case.trainable.export_hf(case.config, soup, exported, case.cache)
        model = case.trainable.exportable(case.config, soup, case.cache)
        for inputs, outputs in zip(
            model.examples, plain_transformers(exported, model), strict=True
        ):
            with torch.no_grad():
                torch.testing.assert_close(outputs, model.module(inputs))

    def test_initial_reproduces_the_weights_of_step_0(self, case: Case) -> None:
        weights, start = case.run.folder, case.folder / "start"
        start.mkdir()
        lineage = read_lineage(weights)
        assert case.trainable.initial(case.config, start, case.cache) == lineage
        assert case.trainable.digest(case.config, start, case.cache) == lineage
        assert case.trainable.digest(case.config, weights, case.cache) != lineage
        first, last = (case.evaluate(folder, Split.SELECTION) for folder in (start, weights))
        assert first[case.example.judged[-1]] != last[case.example.judged[-1]]

    def test_lineage_depends_on_initial_weights_only(self, case: Case) -> None:
        def lineage(label: str, seed: int = 0, **changes: Any) -> str:
            # stopped and resumed: the lineage must survive that too
            for attempt, step in enumerate(case.example.steps[:2], 1):
                stop = RecordingChannel({step: Answer.STOP})
                config = case.example.changed(**changes)
                case.train(label, config, seed=seed, attempt=attempt, channel=stop)
            return read_lineage(newest_checkpoint(case.folder / label).folder)

        base = lineage("base")
        assert lineage("seed", seed=1) == base
        assert lineage("rate", learning_rate=0.05) == base
        assert lineage("init", init_seed=1) != base
