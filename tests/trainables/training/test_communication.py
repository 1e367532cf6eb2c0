from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from pydantic import ValidationError
from torch import nn

from tests.trainables.local import ROOT
from tests.trainables.training import ranks
from trainables.causal_lm.config import CausalLMConfig
from trainables.digits.config import DigitsConfig
from trainables.training.communication.config import METRIC_NAMES, CommunicationConfig
from trainables.training.communication.exchange import parallel


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of four gloo ranks prints."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-m", "tests.trainables.training.ranks"]
    logs = [folder / f"rank_{rank}.log" for rank in range(ranks.WORLD)]
    with ExitStack() as stack:
        processes = [
            subprocess.Popen(
                [*command, str(rank), str(folder)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=stack.enter_context(open(log, "wb")),
            )
            for rank, log in enumerate(logs)
        ]
        printed = [process.communicate(timeout=200)[0] for process in processes]
    assert not any(p.returncode for p in processes), [log.read_text() for log in logs]
    return [json.loads(text) for text in printed]


@pytest.mark.parametrize("count", range(1, ranks.WORLD + 1))
@pytest.mark.parametrize("name", ranks.ALGORITHMS)
def test_algorithm_sums_alike_on_all_ranks(
    found: list[dict[str, Any]], name: str, count: int
) -> None:
    sums = [one["sums"][f"{name} {count}"] for one in found[:count]]
    assert max(one["errors"] for one in sums) <= count  # in roundings of the largest partial sum
    assert len({one["digest"] for one in sums}) == 1


def test_bytes_and_rounds_are_those_of_the_algorithms(found: list[dict[str, Any]]) -> None:
    traffic = [one["traffic"] for one in found]
    assert [t["ring"] for t in traffic] == [[6_144, 6]] * 4  # 2 (n - 1) / n of 4,096 bytes
    assert [t["doubling"] for t in traffic] == [[8_192, 2]] * 4
    assert max(t["tree"][0] for t in traffic) == 8_192
    between = sum(t["hierarchical"][0] for t in traffic[::2]) - 2 * 4_096  # less the broadcasts
    assert between == 2 * 4_096  # each of two groups sends the tensor once


def exact(step: int) -> torch.Tensor:
    return torch.stack([ranks.gradient(r, step) for r in range(ranks.WORLD)]).mean(0)


@pytest.mark.parametrize("name", [*ranks.FEEDBACK, "powersgd ring"])
def test_nothing_is_lost_but_left_for_later(found: list[dict[str, Any]], name: str) -> None:
    results = [one["compressed"][name] for one in found]
    assert all(result["means"] == results[0]["means"] for result in results)
    sent = torch.tensor(results[0]["means"], dtype=torch.float64).sum(0)
    left = torch.tensor([result["error"] for result in results], dtype=torch.float64).mean(0)
    whole = torch.stack([exact(step) for step in range(ranks.STEPS)]).sum(0)
    torch.testing.assert_close(sent + left, whole, rtol=0, atol=1e-5)


def test_compressed_means_are_those_of_their_definition(found: list[dict[str, Any]]) -> None:
    means = {
        name: torch.tensor(one["means"][0], dtype=torch.float64)
        for name, one in found[0]["compressed"].items()
    }
    mine = [ranks.gradient(rank, 0).float() for rank in range(ranks.WORLD)]
    kept = [g * (g.abs() >= g.abs().flatten().topk(11).values[-1]) for g in mine]  # 10 % of 108
    torch.testing.assert_close(means["topk"], torch.stack(kept).double().mean(0), atol=1e-6, rtol=0)
    levels = [(g / (g.abs().max() / 127)).round() * (g.abs().max() / 127) for g in mine]
    torch.testing.assert_close(
        means["int8"], torch.stack(levels).double().mean(0), atol=1e-6, rtol=0
    )
    assert torch.linalg.matrix_rank(means["powersgd"], atol=1e-4) == 2
    for name, eps in (("fp16 ring", 2**-10), ("bf16 ring", 2**-7)):
        torch.testing.assert_close(means[name], exact(0), rtol=0, atol=4 * eps)


@pytest.mark.parametrize("name", ranks.TRAINED)
def test_training_resumes_with_the_errors_that_were_left(
    found: list[dict[str, Any]], name: str
) -> None:
    whole, resumed, _ = found[0]["trained"][name]
    timed = set(METRIC_NAMES) - {"communication_mib_sent"}
    for step, metrics in whole.items():
        assert timed < metrics.keys()
        mine = {k: v for k, v in resumed[step].items() if k not in timed}
        # DDP's buckets of the first step are others, so sums of four ranks have another order
        same = pytest.approx(mine, rel=1e-6) if name in ("builtin", "ring") else mine
        assert same == {k: v for k, v in metrics.items() if k not in timed}


@pytest.mark.parametrize("name", [*ranks.TRAINED, ranks.BATCH_NORM])
def test_reported_scores_are_those_of_the_saved_model(
    found: list[dict[str, Any]], name: str
) -> None:
    whole, _, scores = found[0]["trained"][name]
    reported = {metric: whole["2"][metric] for metric in scores["2"]}
    assert reported == pytest.approx(scores["2"], rel=1e-6)


def test_ways_of_sending_train_alike(found: list[dict[str, Any]]) -> None:
    curves = {name: found[0]["trained"][name][0]["2"] for name in ranks.TRAINED}
    assert curves["ring"]["loss"] == pytest.approx(curves["builtin"]["loss"], rel=1e-6)
    sent = {name: metrics["communication_mib_sent"] for name, metrics in curves.items()}
    assert sent["ring"] == pytest.approx(sent["builtin"], rel=0.01)
    assert sent["topk"] < sent["builtin"] / 2
    assert sent["powersgd"] < sent["builtin"] / 2


def test_combination_without_a_sum_is_refused() -> None:
    with pytest.raises(ValidationError, match="topk gathers them: it needs method builtin"):
        CommunicationConfig(method="ring", compress="topk")


@pytest.mark.parametrize(
    ("settings", "workers", "problem"),
    [
        ({"compress": "topk"}, (1, 2), "must be one number, got 1 to 2"),
        ({"compress": "bf16"}, (1,), "no effect with one worker"),
        ({"bucket_mb": 1}, (1,), "no effect with one worker"),
        ({"compress": "bf16"}, (1, 2), None),
        ({"compress": "topk"}, (2,), None),
        ({}, (1,), None),
    ],
)
def test_number_of_workers_must_fit(
    settings: dict[str, str], workers: tuple[int, ...], problem: str | None
) -> None:
    found = DigitsConfig.model_validate({"communication": settings}).validate_workers(workers)
    assert (found is None) if problem is None else (found is not None and problem in found[1])


@pytest.mark.parametrize("compress", ["powersgd", "topk", "int8", "bf16"])
def test_errors_of_overflows_are_not_kept(compress: str) -> None:
    config = {"dtype": "float16", "communication": {"compress": compress}}
    found = CausalLMConfig.model_validate(config).validate_workers([2])
    assert (found is None) is (compress == "bf16")


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class _OneOfTwo(nn.Module):
    """Leaves one of its layers out."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(200, 200), nn.Linear(200, 200)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.used(x)
        return found


def test_unused_parameters_are_found_if_asked(one_rank: None) -> None:
    def two_steps(**settings: Any) -> None:
        ddp = parallel(_OneOfTwo(), CommunicationConfig(**settings), None)
        for _ in range(2):
            ddp(torch.ones(1, 200)).sum().backward()

    with pytest.raises(RuntimeError, match="find_unused_parameters"):
        two_steps()
    two_steps(find_unused_parameters=True)
    two_steps(static_graph=True)  # which parameters are used is learned in the first step


def test_size_of_pieces_decides_their_number(
    one_rank: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    reduce = dist.all_reduce

    def counted(tensor: torch.Tensor, **options: Any) -> Any:
        sent.append(tensor.numel())
        return reduce(tensor, **options)

    monkeypatch.setattr(dist, "all_reduce", counted)
    for bucket_mb in (25, 0.2):
        settings = CommunicationConfig(bucket_mb=bucket_mb, measure=True)
        ddp = parallel(nn.Sequential(*(nn.Linear(200, 200) for _ in range(8))), settings, None)
        for _ in range(2):  # DDP makes its final pieces after the first step
            sent.clear()
            ddp(torch.ones(1, 200)).sum().backward()
        assert sum(sent) == 8 * 200 * 201
        assert (len(sent) == 1) == (bucket_mb == 25)
