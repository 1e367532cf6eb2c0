"""One of four gloo ranks, as a process of its own: what each way of sending makes of gradients.

    python -m tests.trainables.training.ranks RANK FOLDER

Prints its results as JSON.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.trainables.local import RecordingChannel, newest_checkpoint, run_trial
from trainables.base import Split
from trainables.digits.config import Digits, DigitsConfig
from trainables.job import Answer
from trainables.parallel.footprint import Traffic
from trainables.training.communication import collectives
from trainables.training.communication.config import CommunicationConfig
from trainables.training.communication.exchange import compression

WORLD = 4
SIZES = (1, 3, 8, 101)
DTYPES = (torch.float32, torch.bfloat16)
ALGORITHMS = ("ring", "tree", "doubling", "hierarchical")
FEEDBACK = {"powersgd": {"matrix_rank": 2}, "topk": {"ratio": 0.1}, "int8": {}}
STEPS = 4
TRAINED: dict[str, dict[str, Any]] = {
    "builtin": {"measure": True},
    "ring": {"method": "ring"},
    "powersgd": {"compress": "powersgd", "method": "doubling", "bucket_mb": 0.001},
    "topk": {"compress": "topk", "ratio": 0.1},
}
BATCH_NORM = "batch_norm"
DIGITS = {"hidden_units": 16, "epochs": 2, "dropout": 0.2}


def gradient(rank: int, step: int, size: tuple[int, ...] = (12, 9)) -> torch.Tensor:
    """What a rank computed in a step: float64, so that every dtype is made from it."""
    generator = torch.Generator().manual_seed(1_000 * step + rank)
    return torch.randn(size, generator=generator, dtype=torch.float64)


def sums() -> dict[str, Any]:
    """Largest relative error of each algorithm's sums over 1 to 4 ranks, and a digest of them."""
    found, me = {}, dist.get_rank()
    for name in ALGORITHMS:
        for ranks in range(1, WORLD + 1):
            if me < ranks:
                found[f"{name} {ranks}"] = _sums_of(name, range(ranks))
        dist.barrier()
    return found


def _sums_of(name: str, ranks: range) -> dict[str, Any]:
    worst, digest, me = 0.0, hashlib.sha256(), dist.get_rank()
    for size in SIZES:
        for dtype in DTYPES:
            parts = [gradient(rank, size, (size,)).to(dtype) for rank in ranks]
            mine = parts[me].clone()
            getattr(collectives, name)(mine, ranks, Traffic())
            exact = torch.stack(parts).double().sum(0)
            scale = torch.stack(parts).double().abs().sum(0) * torch.finfo(dtype).eps
            worst = max(worst, float(((mine.double() - exact).abs() / scale).max()))
            digest.update(mine.view(torch.uint8).numpy().tobytes())
    return {"errors": worst, "digest": digest.hexdigest()}


def traffic() -> dict[str, list[int]]:
    """Bytes and rounds of this rank, for 4,096 bytes."""
    found = {}
    for name in ALGORITHMS:
        sent = Traffic()
        getattr(collectives, name)(torch.ones(1_024), range(WORLD), sent)
        found[name] = [sent.bytes, sent.messages]
    return found


def compressed(name: str, options: dict[str, Any], method: str = "builtin") -> dict[str, Any]:
    """The means of some steps, and what this rank left out in the end."""
    settings = CommunicationConfig.model_validate({"compress": name, "method": method, **options})
    way, means = compression(settings, Traffic()), []
    for step in range(STEPS):
        mine = {"matrix": gradient(dist.get_rank(), step).float(), "bias": torch.full((3,), 0.5)}
        way.average(mine)
        means.append(mine["matrix"].tolist())
    error = way.state.get("error.matrix")
    return {"means": means, "error": None if error is None else error.view(12, 9).tolist()}


def trained(folder: Path, communication: dict[str, Any]) -> list[dict[int, dict[str, float]]]:
    """Curves of digits, whole and in two halves; the scores of the model that was saved."""
    options = {"rank": dist.get_rank(), "world_size": WORLD, "cache": folder / "cache"}
    config = {**DIGITS, "communication": communication, BATCH_NORM: folder.name == BATCH_NORM}
    whole = run_trial(folder / "whole", "digits", config, **options)
    cut = RecordingChannel({1: Answer.STOP})
    run_trial(folder / "cut", "digits", config, channel=cut, **options)
    rest = run_trial(folder / "cut", "digits", config, attempt=2, **options)
    saved = newest_checkpoint(folder / "whole").folder
    scores = Digits().evaluate(DigitsConfig.model_validate(config), saved, Split.SELECTION, folder)
    return [whole.curve, {**cut.curve, **rest.curve}, {2: scores}]


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder / 'rendezvous'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=WORLD)
    found = {
        "sums": sums(),
        "traffic": traffic(),
        "compressed": {
            **{name: compressed(name, options) for name, options in FEEDBACK.items()},
            **{f"{n} ring": compressed(n, {}, "ring") for n in ("fp16", "bf16", "powersgd")},
        },
        "trained": {
            name: trained(folder / name, options)
            for name, options in {**TRAINED, BATCH_NORM: {}}.items()
        },
    }
    dist.destroy_process_group()
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
