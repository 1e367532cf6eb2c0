"""Training on a GPU without Ray: precision, resume, memory, one NCCL rank, evaluation."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from results.records.failures import Remedy, classify
from results.records.worker_samples import GPU_NEEDED, GPU_PERCENT
from tests.trainables.local import RecordingChannel, make_job, newest_checkpoint
from trainables.base import Split
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.trainable import CausalLM
from trainables.job import Answer
from trainables.launch.run_trial import run_trial
from trainables.parallel.context import attention
from trainables.parallel.ring import ring_attention
from trainables.runtime.device_meter import nvml_meter
from trainables.runtime.gpu_share import limit_memory
from trainables.runtime.leftovers import LeakDetector, measure
from trainables.training import run
from trainables.training.gradients import data_parallel
from trainables.worker import Worker

DEVICE = torch.device("cuda", 0)
CONFIG: dict[str, Any] = {
    "hidden_size": 128,
    "num_layers": 2,
    "num_heads": 2,
    "vocab_size": 512,
    "sequence_length": 64,
    "batch_size": 16,
    "max_steps": 12,
    "eval_every": 4,
    "eval_sequences": 32,
    "dtype": "auto",
    "data": {"max_bytes": 200_000},
}
HUGE: dict[str, Any] = {
    **CONFIG,
    "hidden_size": 1024,
    "num_heads": 8,
    "sequence_length": 512,
    "batch_size": 16_384,
    "compile": False,
}
"""Its activations take some hundred GB."""
MIB = 2**20


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def empty_device() -> Iterator[None]:
    yield
    torch.cuda.empty_cache()


def train(
    folder: Path,
    cache: Path,
    config: Mapping[str, Any] = CONFIG,
    channel: RecordingChannel | None = None,
    **options: Any,
) -> RecordingChannel:
    """Train a trial on the GPU; returns its channel."""
    channel = channel or RecordingChannel()
    run_trial(make_job(folder, "causal_lm", config, cache=cache, **options), channel, DEVICE)
    return channel


def losses(channel: RecordingChannel) -> dict[int, tuple[float, float]]:
    return {r.step: (r.metrics["train_loss"], r.metrics["eval_loss"]) for r in channel.reports}


@pytest.mark.parametrize("compiled", [False, True])
def test_bfloat16_learns_and_stays_near_float32(
    tmp_path: Path, cache: Path, compiled: bool
) -> None:
    half = train(tmp_path / "half", cache, {**CONFIG, "compile": compiled})
    full = train(tmp_path / "full", cache, {**CONFIG, "dtype": "float32"})
    first, last = (losses(half)[step][1] for step in (4, 12))
    assert last < first - 0.1
    assert last == pytest.approx(losses(full)[12][1], rel=0.02)
    assert losses(half) != losses(full)
    assert half.reports[-1].metrics["peak_memory_gib"] > 0


@pytest.mark.parametrize("changes", [{}, {"compile": True}, {"activation_checkpointing": True}])
def test_resumed_trial_continues_as_if_uninterrupted(
    tmp_path: Path,
    cache: Path,
    changes: dict[str, Any],
    record_property: Callable[[str, object], None],
) -> None:
    """Sums over rows with atomics (the embedding's gradient) differ in the last bits."""
    config = {**CONFIG, **changes}
    whole = train(tmp_path / "whole", cache, config)
    stopped = train(tmp_path / "cut", cache, config, RecordingChannel({4: Answer.STOP}))
    assert list(losses(stopped)) == [4]
    rest = train(tmp_path / "cut", cache, config, attempt=2)
    assert list(losses(rest)) == [8, 12]
    got = {**losses(stopped), **losses(rest)}
    differences = [
        abs(a - b) for step in got for a, b in zip(got[step], losses(whole)[step], strict=True)
    ]
    record_property("largest difference of a loss, nats", max(differences))
    assert max(differences) < 2e-3


def test_too_large_a_batch_is_classified_as_memory(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(torch.OutOfMemoryError) as caught:
        train(tmp_path / "t", cache, HUGE)
    failure = classify(f"torch.OutOfMemoryError: {caught.value}")
    assert failure.remedy is Remedy.SHRINK
    del caught
    assert losses(train(tmp_path / "next", cache))  # the process goes on


def test_a_share_of_the_device_limits_memory() -> None:
    total = torch.cuda.get_device_properties(DEVICE).total_memory
    share = torch.empty(int(0.12 * total), dtype=torch.uint8, device=DEVICE)  # a first one fits
    del share
    torch.cuda.empty_cache()
    limit_memory(0.1, DEVICE)
    try:
        torch.empty(int(0.05 * total), dtype=torch.uint8, device=DEVICE)
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(int(0.12 * total), dtype=torch.uint8, device=DEVICE)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, DEVICE)


def test_memory_of_a_trial_is_freed(tmp_path: Path, cache: Path) -> None:
    config = {**CONFIG, "hidden_size": 512, "num_layers": 4, "num_heads": 8}  # 200 MiB of state
    detector, left = LeakDetector(DEVICE, 256 * MIB), []
    for number, compiled in enumerate((True, False, True)):
        train(tmp_path / f"t{number}", cache, {**config, "compile": compiled})
        assert detector.after_trial() is None
        left.append(measure(DEVICE).device)
    assert max(left) < 100 * MIB  # workspaces of the libraries


def test_one_nccl_rank_trains_like_none(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {**CONFIG, "dtype": "float32"}
    alone = train(tmp_path / "alone", cache, config)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("nccl", init_method=address, rank=0, world_size=1, device_id=DEVICE)

    def wrapped(model: torch.nn.Module, worker: Worker, *settings: Any) -> torch.nn.Module:
        """As with several ranks: a single one would need no DDP."""
        several: Any = SimpleNamespace(world_size=2, device=worker.device, mesh=worker.mesh)
        return data_parallel(model, several, *settings)

    monkeypatch.setattr(run, "data_parallel", wrapped)
    try:
        grouped = train(tmp_path / "grouped", cache, config)
    finally:
        dist.destroy_process_group()
    for step, pair in losses(alone).items():
        assert losses(grouped)[step] == pytest.approx(pair, abs=1e-3)


def test_evaluation_on_a_gpu_equals_that_on_a_cpu(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {**CONFIG, "dtype": "float32"}
    channel = train(tmp_path / "t", cache, config)
    weights = newest_checkpoint(tmp_path / "t").folder
    given, trainable = CausalLMConfig.model_validate(config), CausalLM()
    on_gpu = trainable.evaluate(given, weights, Split.SELECTION, cache)
    assert on_gpu["eval_loss"] == pytest.approx(losses(channel)[12][1], abs=1e-5)
    each = trainable.examples(given, weights, Split.TEST, cache)["eval_loss"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    on_cpu = trainable.evaluate(given, weights, Split.SELECTION, cache)
    assert on_cpu == pytest.approx(on_gpu, abs=1e-4)
    expected = trainable.examples(given, weights, Split.TEST, cache)["eval_loss"]
    assert each == pytest.approx(expected, abs=1e-3)


def test_the_kernel_of_ring_attention_gives_the_gradients_of_torch(tmp_path: Path) -> None:
    """One rank, whose ring has no other: dtype and layout of what the kernel takes and gives."""
    whole = [
        torch.randn(2, 4, 256, 64, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    ]
    expected = torch.nn.functional.scaled_dot_product_attention(*whole, is_causal=True)
    store = (tmp_path / "store").as_uri()
    dist.init_process_group("nccl", init_method=store, rank=0, world_size=1, device_id=DEVICE)
    try:
        out = ring_attention(*whole, group=None)
        torch.testing.assert_close(out, expected)
        grad = torch.randn_like(out)
        pairs = [torch.autograd.grad(found, whole, grad) for found in (out, expected)]
        for mine, known in zip(*pairs, strict=True):
            torch.testing.assert_close(mine, known, rtol=2e-2, atol=2e-2)
    finally:
        dist.destroy_process_group()


def test_masked_attention_with_shared_heads_keeps_no_scores() -> None:
    query = torch.randn(4, 16, 2048, 64, device=DEVICE, dtype=torch.bfloat16)
    key = query[:, :4].contiguous()
    mask = torch.ones(2048, 2048, device=DEVICE, dtype=torch.bool).tril()[None, None]
    expected = attention(query, key, key, None)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()

    found = attention(query, key, key, mask)

    assert torch.cuda.max_memory_allocated() - before < 200 * MIB  # the scores: 512 MiB and more
    torch.testing.assert_close(found, expected, atol=0.02, rtol=0.02)


def test_meter_sees_a_busy_gpu() -> None:
    meter = nvml_meter(DEVICE)
    assert meter is not None
    product, until = torch.rand(4096, 4096, device=DEVICE), time.monotonic() + 2
    while time.monotonic() < until:
        product = (product @ product).clamp(max=1)
        torch.cuda.synchronize(DEVICE)
    found = meter()
    assert found[GPU_PERCENT] > 50
    assert 0 < found[GPU_NEEDED] < 100
