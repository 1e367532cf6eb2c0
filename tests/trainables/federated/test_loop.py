from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.trainables.examples import EXAMPLES
from tests.trainables.federated.tiny import TINY, config
from tests.trainables.local import RecordingChannel, newest_checkpoint, run_trial
from trainables.federated.config import SERVER_RATES
from trainables.federated.loop import sample
from trainables.job import Answer


def weights(folder: Path, **changes: Any) -> dict[str, torch.Tensor]:
    run_trial(folder, "federated", {**TINY, **changes})
    return newest(folder)


def newest(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(newest_checkpoint(folder).folder / "model.safetensors")


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_one_client_with_kept_optimizer_equals_plain_training(tmp_path: Path) -> None:
    alone = {"clients": 1, "keep_optimizer": True}
    often = weights(tmp_path / "a", **alone, rounds=6, local_steps=1)
    once = weights(tmp_path / "b", **alone, rounds=1, local_steps=6)
    assert same(often, once)
    forgets = weights(tmp_path / "c", clients=1, rounds=6, local_steps=1)
    assert not same(forgets, once)


@pytest.mark.parametrize("server", SERVER_RATES)
def test_resumed_trial_keeps_the_servers_state(tmp_path: Path, server: str) -> None:
    given = {**TINY, "server": server, "keep_optimizer": True, "rounds": 3, "participation": 0.7}
    whole = run_trial(tmp_path / "whole", "federated", given)
    cut = RecordingChannel({2: Answer.STOP})
    run_trial(tmp_path / "cut", "federated", given, channel=cut)
    rest = run_trial(tmp_path / "cut", "federated", given, attempt=2)
    assert {**cut.curve, **rest.curve} == whole.curve
    assert same(newest(tmp_path / "cut"), newest(tmp_path / "whole"))


@pytest.mark.parametrize("name", ["uniform", "median", "trimmed_mean", "ties", "dare_linear"])
def test_aggregation_is_deterministic(tmp_path: Path, name: str) -> None:
    uneven = {"partition": "dirichlet"}
    made = weights(tmp_path / "a", aggregation=name, **uneven)
    assert not same(made, weights(tmp_path / "b", **uneven))
    assert same(made, weights(tmp_path / "c", aggregation=name, **uneven))


def test_batch_norm_statistics_are_averaged_without_a_server_step(tmp_path: Path) -> None:
    """An adaptive step would make a variance negative within some rounds."""
    client = {**TINY["client"], "batch_norm": True}
    made = weights(tmp_path, client=client, server="fedadam", server_learning_rate=1.0, rounds=8)
    assert (made["1.running_var"] > 0).all()
    assert made["1.num_batches_tracked"] == 8 * 3


def test_proximal_term_keeps_clients_near_the_server(tmp_path: Path) -> None:
    start = weights(tmp_path / "start", rounds=1, local_steps=1)

    def distance(folder: str, strength: float) -> float:
        made = weights(tmp_path / folder, rounds=1, local_steps=20, proximal=strength)
        return sum(float((made[k] - start[k]).norm()) for k in made)

    assert distance("b", 100.0) < 0.7 * distance("a", 0.0)


def test_sample_depends_on_seed_and_round() -> None:
    some = config(clients=10, participation=0.5)
    assert [len(sample(some, 0, n)) for n in range(5)] == [5] * 5
    assert sample(some, 0, 1) == sample(some, 0, 1)
    assert len({tuple(sample(some, 0, n)) for n in range(9)}) > 1
    lossy = config(clients=10, drop_out=0.5)
    assert 30 < sum(len(sample(lossy, 0, n)) for n in range(10)) < 70


def test_round_without_answers_changes_nothing(tmp_path: Path) -> None:
    lossy = {**TINY, "clients": 1, "drop_out": 0.9, "rounds": 3}
    channel = run_trial(tmp_path, "federated", lossy)
    silent = [s for s in (1, 2, 3) if not sample(config(clients=1, drop_out=0.9), 0, s)]
    assert silent
    for step in silent:
        assert channel.curve[step]["clients"] == 0
        assert "train_loss" not in channel.curve[step]
        if step > 1:
            assert channel.curve[step]["loss"] == channel.curve[step - 1]["loss"]


def test_keep_clients_saves_each_clients_model(tmp_path: Path) -> None:
    made = weights(tmp_path, keep_clients=True)
    folders = sorted((newest_checkpoint(tmp_path).folder / "clients").iterdir())
    assert [f.name for f in folders] == ["00000", "00001", "00002"]
    examples = [json.loads((f / "lineage.json").read_text())["examples"] for f in folders]
    assert sum(examples) == 1077
    each = [load_file(f / "model.safetensors") for f in folders]
    for name, tensor in made.items():
        mean = sum(t[name].double() * n for t, n in zip(each, examples, strict=True)) / 1077
        assert torch.equal(tensor, mean.float()) or torch.allclose(tensor, mean.float(), rtol=1e-6)


def test_text_is_divided_by_source_file(tmp_path: Path) -> None:
    client = EXAMPLES["causal_lm"].config
    given = {"task": "causal_lm", "client": client, "clients": 2, "rounds": 2, "local_steps": 2}
    by_file = {**given, "partition": "groups", "by": "source", "server": "fedavgm"}
    channel = run_trial(tmp_path / "t", "federated", by_file)
    assert channel.curve[2]["eval_loss"] < channel.curve[1]["eval_loss"]
    made = newest(tmp_path / "t")
    assert "lm_head.weight" not in made, "tied to the embeddings"
