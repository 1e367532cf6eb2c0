"""Federated training: who has what, what the server does, and that nothing depends on luck."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file

from results.checkpoints.commit import newest_intact
from results.paths import TrialPaths
from tests.trainables.local import RecordingChannel, run_trial
from trainables.federated.config import SERVER_RATES, FederatedConfig
from trainables.federated.loop import sample
from trainables.federated.partition import deal
from trainables.federated.server import Server
from trainables.job import Answer
from trainables.registry import resolve

TINY: dict[str, Any] = {
    "task": "digits",
    "client": {"hidden_units": 8, "num_layers": 1, "batch_size": 16, "learning_rate": 0.01},
    "clients": 3,
    "rounds": 2,
    "local_steps": 3,
}
LABELS = np.repeat(np.arange(10), 100)


def config(**changes: Any) -> FederatedConfig:
    return FederatedConfig.model_validate({**TINY, **changes})


def weights(folder: Path, **changes: Any) -> dict[str, torch.Tensor]:
    run_trial(folder, "federated", {**TINY, **changes})
    return newest(folder)


def newest(folder: Path) -> dict[str, torch.Tensor]:
    found = newest_intact(TrialPaths(folder))
    assert found is not None
    return load_file(found.folder / "model.safetensors")


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize("partition", ["iid", "dirichlet", "groups"])
@pytest.mark.parametrize("clients", [1, 4, 7])
def test_each_row_is_one_clients(partition: str, clients: int) -> None:
    made = config(partition=partition, clients=clients, alpha=0.05)
    shards = deal(made, 1000, lambda by: LABELS)
    assert sorted(np.concatenate(shards)) == list(range(1000))
    assert all(len(shard) for shard in shards)
    again = deal(made, 1000, lambda by: LABELS)
    assert all((a == b).all() for a, b in zip(shards, again, strict=True))


def test_partitions_are_as_uneven_as_asked() -> None:
    def spread(**changes: Any) -> float:
        """Mean over clients of the part of its most frequent label."""
        shards = deal(config(clients=5, **changes), 1000, lambda by: LABELS)
        return float(np.mean([np.bincount(LABELS[s]).max() / len(s) for s in shards]))

    even = spread(partition="iid")
    mild, strong = (spread(partition="dirichlet", alpha=a) for a in (10.0, 0.05))
    assert even < 0.2
    assert even < mild < strong
    shards = deal(config(clients=5, partition="groups"), 1000, lambda by: LABELS)
    assert [len(np.unique(LABELS[s])) for s in shards] == [2] * 5
    with pytest.raises(ValueError, match="2 examples cannot be dealt out to 3 clients"):
        deal(config(), 2, lambda by: LABELS)


def test_the_server_steps_as_published() -> None:
    weights = np.array([1.0, -2.0])
    average = np.array([1.5, -2.5])
    way = average - weights
    assert Server(config()).step("w", weights, average) is average
    half = Server(config(server_learning_rate=0.5)).step("w", weights, average)
    assert half.tolist() == (weights + 0.5 * way).tolist()
    avgm = Server(config(server="fedavgm"))
    first = avgm.step("w", weights, average)
    second = avgm.step("w", first, first + way)
    assert second.tolist() == pytest.approx((first + 1.9 * way).tolist())
    tau, b1, b2 = 1e-3, 0.9, 0.99
    for name, squares in (
        ("fedadagrad", tau**2 + way**2),
        ("fedadam", b2 * tau**2 + (1 - b2) * way**2),
        ("fedyogi", tau**2 - (1 - b2) * way**2 * np.sign(tau**2 - way**2)),
    ):
        found = Server(config(server=name)).step("w", weights, average)
        expected = weights + SERVER_RATES[name] * (1 - b1) * way / (np.sqrt(squares) + tau)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_diloco_is_pytorchs_nesterov() -> None:
    server = Server(config(server="diloco"))
    ours = np.array([1.0, -2.0])
    theirs = torch.nn.Parameter(torch.tensor(ours))
    sgd = torch.optim.SGD([theirs], lr=0.7, momentum=0.9, nesterov=True)
    for average in np.random.default_rng(0).normal(size=(4, 2)):
        theirs.grad = theirs.detach() - torch.from_numpy(average)
        sgd.step()
        ours = server.step("w", ours, average)
        np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-12)


def test_one_client_that_keeps_its_optimizer_is_plain_training(tmp_path: Path) -> None:
    alone = {"clients": 1, "keep_optimizer": True}
    often = weights(tmp_path / "a", **alone, rounds=6, local_steps=1)
    once = weights(tmp_path / "b", **alone, rounds=1, local_steps=6)
    assert same(often, once)
    forgets = weights(tmp_path / "c", clients=1, rounds=6, local_steps=1)
    assert not same(forgets, once)


@pytest.mark.parametrize("server", SERVER_RATES)
def test_a_stopped_trial_goes_on_with_the_servers_state(tmp_path: Path, server: str) -> None:
    given = {**TINY, "server": server, "keep_optimizer": True, "rounds": 3, "participation": 0.7}
    whole = run_trial(tmp_path / "whole", "federated", given)
    cut = RecordingChannel({2: Answer.STOP})
    run_trial(tmp_path / "cut", "federated", given, channel=cut)
    rest = run_trial(tmp_path / "cut", "federated", given, attempt=2)
    assert {**cut.curve, **rest.curve} == whole.curve
    assert same(newest(tmp_path / "cut"), newest(tmp_path / "whole"))


@pytest.mark.parametrize("name", ["uniform", "median", "trimmed_mean", "ties", "dare_linear"])
def test_every_aggregation_trains(tmp_path: Path, name: str) -> None:
    uneven = {"partition": "dirichlet"}
    made = weights(tmp_path / "a", aggregation=name, **uneven)
    assert not same(made, weights(tmp_path / "b", **uneven))
    assert same(made, weights(tmp_path / "c", aggregation=name, **uneven))


def test_statistics_are_averaged_and_never_stepped(tmp_path: Path) -> None:
    """An adaptive step would make a variance negative within some rounds."""
    client = {**TINY["client"], "batch_norm": True}
    made = weights(tmp_path, client=client, server="fedadam", server_learning_rate=1.0, rounds=8)
    assert (made["1.running_var"] > 0).all()
    assert made["1.num_batches_tracked"] == 8 * 3


def test_the_proximal_term_holds_clients_back(tmp_path: Path) -> None:
    start = weights(tmp_path / "start", rounds=1, local_steps=1)

    def distance(folder: str, strength: float) -> float:
        made = weights(tmp_path / folder, rounds=1, local_steps=20, proximal=strength)
        return sum(float((made[k] - start[k]).norm()) for k in made)

    assert distance("b", 100.0) < 0.7 * distance("a", 0.0)


def test_who_takes_part_is_a_function_of_seed_and_round() -> None:
    some = config(clients=10, participation=0.5)
    assert [len(sample(some, 0, n)) for n in range(5)] == [5] * 5
    assert sample(some, 0, 1) == sample(some, 0, 1)
    assert len({tuple(sample(some, 0, n)) for n in range(9)}) > 1
    lossy = config(clients=10, drop_out=0.5)
    assert 30 < sum(len(sample(lossy, 0, n)) for n in range(10)) < 70


def test_a_round_in_which_nobody_answers_changes_nothing(tmp_path: Path) -> None:
    lossy = {**TINY, "clients": 1, "drop_out": 0.9, "rounds": 3}
    channel = run_trial(tmp_path, "federated", lossy)
    silent = [s for s in (1, 2, 3) if not sample(config(clients=1, drop_out=0.9), 0, s)]
    assert silent
    for step in silent:
        assert channel.curve[step]["clients"] == 0
        assert "train_loss" not in channel.curve[step]
        if step > 1:
            assert channel.curve[step]["loss"] == channel.curve[step - 1]["loss"]


def test_checkpoints_can_hold_each_clients_model(tmp_path: Path) -> None:
    made = weights(tmp_path, keep_clients=True)
    found = newest_intact(TrialPaths(tmp_path))
    assert found is not None
    folders = sorted((found.folder / "clients").iterdir())
    assert [f.name for f in folders] == ["00000", "00001", "00002"]
    told = [json.loads((f / "lineage.json").read_text())["examples"] for f in folders]
    assert sum(told) == 1077
    each = [load_file(f / "model.safetensors") for f in folders]
    for name, tensor in made.items():
        mean = sum(t[name].double() * n for t, n in zip(each, told, strict=True)) / 1077
        assert torch.equal(tensor, mean.float()) or torch.allclose(tensor, mean.float(), rtol=1e-6)


def test_text_is_dealt_out_by_source_file(tmp_path: Path) -> None:
    client = {
        "hidden_size": 16,
        "num_layers": 1,
        "vocab_size": 300,
        "sequence_length": 16,
        "batch_size": 4,
        "eval_sequences": 20,
        "data": {"max_bytes": 100_000},
    }
    given = {"task": "causal_lm", "client": client, "clients": 2, "rounds": 2, "local_steps": 2}
    by_file = {**given, "partition": "groups", "by": "source", "server": "fedavgm"}
    channel = run_trial(tmp_path / "t", "federated", by_file)
    assert channel.curve[2]["eval_loss"] < channel.curve[1]["eval_loss"]
    made = newest(tmp_path / "t")
    assert "lm_head.weight" not in made, "tied to the embeddings"


def test_mistakes_in_the_clients_hyperparameters_are_named() -> None:
    model = resolve("federated").Config
    (problem,) = model.problems({**TINY, "client": {"hidden_unit": 3}})
    assert "client.hidden_unit: unknown hyperparameter 'hidden_unit' (did you mean" in problem[1]
    (problem,) = model.problems({**TINY, "task": "digit"})
    assert "unknown trainable 'digit' (did you mean 'digits'?)" in problem[1]
    with pytest.raises(ValidationError, match="task federated: not a trainable with clients"):
        config(task="federated", client={})
    assert model.with_init_seed(TINY, 5)["client"]["init_seed"] == 5
