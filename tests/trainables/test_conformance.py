"""The contract of every registered trainable; a new one needs an entry in `examples.py` only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from results.checkpoints.commit import newest_intact, verify
from results.paths import TrialPaths
from tests.trainables.examples import EXAMPLES, Example
from tests.trainables.local import RecordingChannel, run_trial
from trainables.base import Split
from trainables.common.training import read_lineage
from trainables.job import Answer
from trainables.registry import TRAINABLES, resolve


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("name", TRAINABLES)
class TestTrainable:
    @pytest.fixture
    def example(self, name: str) -> Example:
        return EXAMPLES[name]

    def test_unknown_keys_are_refused(self, name: str, example: Example) -> None:
        with pytest.raises(ValidationError, match="no_such_key"):
            resolve(name).Config.model_validate({**example.config, "no_such_key": 1})

    def test_same_seed_gives_the_same_curve_in_one_process(
        self, name: str, example: Example, tmp_path: Path, cache: Path
    ) -> None:
        first = run_trial(tmp_path / "a", name, example.config, seed=7, cache=cache)
        other = run_trial(tmp_path / "b", name, example.config, seed=8, cache=cache)
        third = run_trial(tmp_path / "c", name, example.config, seed=7, cache=cache)
        assert tuple(first.curve) == example.steps
        assert first.curve == third.curve
        assert first.curve != other.curve
        losses = [metrics[example.learned] for metrics in first.curve.values()]
        assert losses[-1] < losses[0]

    def test_stopped_trial_resumes_bit_for_bit(
        self, name: str, example: Example, tmp_path: Path, cache: Path
    ) -> None:
        whole = run_trial(tmp_path / "whole", name, example.config, cache=cache)
        folder, (stop, *rest) = tmp_path / "cut", example.steps
        channel = RecordingChannel({stop: Answer.STOP})
        run_trial(folder, name, example.config, channel=channel, cache=cache)
        assert list(channel.curve) == [stop]
        torch.rand(3)  # the process does something else in between
        resumed = run_trial(folder, name, example.config, attempt=2, cache=cache)
        assert list(resumed.curve) == rest
        assert {**channel.curve, **resumed.curve} == whole.curve
        assert weights_bytes(folder) == weights_bytes(tmp_path / "whole")

    def test_checkpoint_evaluates_to_the_reported_metrics(
        self, name: str, example: Example, tmp_path: Path, cache: Path
    ) -> None:
        channel = run_trial(tmp_path / "t", name, example.config, cache=cache)
        found = newest_intact(TrialPaths(tmp_path / "t"))
        assert found is not None
        assert found.step == example.steps[-1]
        assert "model.safetensors" in verify(found.folder).files
        trainable = resolve(name)
        config = trainable.Config.model_validate(example.config)
        judged = trainable.evaluate(config, found.folder, Split.SELECTION, cache)
        assert judged == {k: channel.reports[-1].metrics[k] for k in example.judged}
        # a soup's folder holds the weights only
        (tmp_path / "soup").mkdir()
        weights = (found.folder / "model.safetensors").read_bytes()
        (tmp_path / "soup" / "model.safetensors").write_bytes(weights)
        assert trainable.evaluate(config, tmp_path / "soup", Split.SELECTION, cache) == judged
        test = trainable.evaluate(config, tmp_path / "soup", Split.TEST, cache)
        assert test.keys() == judged.keys()
        assert test != judged
        expected = config.checkpoint_bytes
        assert expected is not None
        assert expected == pytest.approx(3 * len(weights), rel=0.2)

    def test_mean_of_examples_is_what_evaluate_gives(
        self, name: str, example: Example, tmp_path: Path, cache: Path
    ) -> None:
        run_trial(tmp_path / "t", name, example.config, cache=cache)
        found = newest_intact(TrialPaths(tmp_path / "t"))
        assert found is not None
        trainable = resolve(name)
        config = trainable.Config.model_validate(example.config)
        each = trainable.examples(config, found.folder, Split.TEST, cache)
        judged = trainable.evaluate(config, found.folder, Split.TEST, cache)
        assert {k: sum(v) / len(v) for k, v in each.items()} == pytest.approx(judged, rel=1e-5)
        assert all(len(values) > 1 for values in each.values())
        assert trainable.examples(config, found.folder, Split.TEST, cache) == each

    def test_initial_reproduces_the_weights_of_step_0(
        self, name: str, example: Example, tmp_path: Path, cache: Path
    ) -> None:
        run_trial(tmp_path / "t", name, example.config, seed=5, cache=cache)
        found = newest_intact(TrialPaths(tmp_path / "t"))
        assert found is not None
        trainable = resolve(name)
        config = trainable.Config.model_validate(example.config)
        (tmp_path / "start").mkdir()
        lineage = read_lineage(found.folder)
        assert trainable.initial(config, tmp_path / "start", cache) == lineage
        assert trainable.digest(config, tmp_path / "start", cache) == lineage
        assert trainable.digest(config, found.folder, cache) != lineage
        first = trainable.evaluate(config, tmp_path / "start", Split.SELECTION, cache)
        last = trainable.evaluate(config, found.folder, Split.SELECTION, cache)
        assert first[example.judged[-1]] != last[example.judged[-1]]

    def test_lineage_depends_on_initial_weights_only(
        self, name: str, example: Example, tmp_path: Path, cache: Path
    ) -> None:
        def lineage(label: str, seed: int = 0, **changes: Any) -> str:
            # stopped and resumed: the lineage must survive that too
            config, folder = example.changed(**changes), tmp_path / label
            for attempt, step in enumerate(example.steps[:2], 1):
                run_trial(
                    folder,
                    name,
                    config,
                    seed=seed,
                    attempt=attempt,
                    cache=cache,
                    channel=RecordingChannel({step: Answer.STOP}),
                )
            found = newest_intact(TrialPaths(folder))
            assert found is not None
            return read_lineage(found.folder)

        base = lineage("base")
        assert lineage("seed", seed=1) == base
        assert lineage("rate", learning_rate=0.05) == base
        assert lineage("init", init_seed=1) != base

    def test_pause_ends_training_with_a_checkpoint(
        self, name: str, example: Example, tmp_path: Path, cache: Path
    ) -> None:
        channel = RecordingChannel({example.steps[1]: Answer.PAUSE})
        run_trial(tmp_path, name, example.config, channel=channel, cache=cache, checkpoint_every=1)
        assert [r.step for r in channel.reports] == list(example.steps[:2])
        assert TrialPaths(tmp_path).checkpoint_steps() == list(example.steps[:2])

    def test_global_state_is_restored(
        self, name: str, example: Example, tmp_path: Path, cache: Path
    ) -> None:
        def state() -> tuple[Any, ...]:
            return (
                torch.get_num_threads(),
                torch.get_default_dtype(),
                torch.are_deterministic_algorithms_enabled(),
                torch.is_grad_enabled(),
                torch.get_rng_state().tolist(),
            )

        before = state()
        run_trial(tmp_path, name, example.config, cache=cache)
        assert state() == before


def weights_bytes(folder: Path) -> bytes:
    found = newest_intact(TrialPaths(folder))
    assert found is not None
    return (found.folder / "model.safetensors").read_bytes()
