"""Whether the best learning rate of narrow models is that of a wide one.

Models are trained at learning rates of a grid, on the standard library's text. The best rate
of the widest model is predicted from models of at most `--known`: under muP it is their mean, under
the standard parametrization a power law of the width. Then the wide model is trained at the
predicted rate. On a CUDA device models are trained side by side, one process for each width.
A trained model's loss and seconds are kept in `--cache`, so that a run that was ended continues.
`python -m benchmarks.transfer --help`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean, linear_regression
from typing import Any

import numpy as np
import torch

from benchmarks.process import ROOT
from trainables.base import Split
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.task import TextTask

WIDTHS, KNOWN = (32, 64, 128, 256, 512), 128
RATES = tuple(2.0**e for e in range(-11, -2))
PARAMETRIZATIONS = ("standard", "mup")


def config_of(name: str, width: int, args: argparse.Namespace, rate: float) -> CausalLMConfig:
    """A Llama of a width, with heads of 16 units."""
    base = {} if name == "standard" else {"parametrization": name, "base_hidden_size": 64}
    return CausalLMConfig.model_validate(
        {
            **{"hidden_size": width, "num_layers": args.layers, "head_width": 16, **base},
            **{"sequence_length": args.length, "batch_size": args.batch, "vocab_size": 2048},
            **{"learning_rate": rate, "max_steps": args.steps, "weight_decay": 0.0},
            "data": {"max_bytes": 8_000_000},
        }
    )


def loss_of(config: CausalLMConfig, seed: int, cache: Path) -> float:
    """Loss on the selection split after training, nats per token; infinite if it diverged."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = config.model_copy(update={"init_seed": seed})
    task = TextTask.open(config, cache)
    model = task.to_device(task.new_model(), device).train()
    optimizer, objective = task.optimizer(model), task.objective(model)
    factor = task.lr_factor(config.max_steps)
    assert factor is not None
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    order = np.random.default_rng(seed)
    for _ in range(config.max_steps):
        batch = task.batch(order.integers(task.size, size=config.batch_size), device)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = task.loss(objective, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    found = task.evaluate(model.eval(), Split.SELECTION)["eval_loss"]
    return found if math.isfinite(found) else math.inf


def measured(config: CausalLMConfig, seed: int, cache: Path) -> list[float]:
    """Loss and seconds of a training, of the processor on a CPU; from the cache if it is there."""
    key = hashlib.sha256(f"{config.model_dump_json()} {seed}".encode()).hexdigest()[:16]
    file = cache / "results" / f"{key}.json"
    if not file.exists():
        clock = time.monotonic if torch.cuda.is_available() else time.process_time
        began = clock()
        found = [loss_of(config, seed, cache), clock() - began]
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(found))
    return list(map(float, json.loads(file.read_text())))


def curve(
    name: str, width: int, rates: list[float], args: argparse.Namespace
) -> tuple[list[float], float]:
    """The mean loss over seeds for each rate, and the seconds of all.

    From the middle of the rates on, until the best is between two worse ones; the others have no
    loss, which is infinite.
    """
    torch.set_num_threads(1)
    losses, seconds, n = [math.inf] * len(rates), 0.0, len(rates) // 2
    left = set(range(len(rates)))
    while beside := [i for i in (n, n - 1, n + 1) if i in left]:
        left.remove(at := beside[0])
        config = config_of(name, width, args, rates[at])
        found = [measured(config, seed, Path(args.cache)) for seed in range(args.seeds)]
        losses[at] = fmean(loss for loss, _ in found)
        seconds += sum(spent for _, spent in found)
        n = min(range(len(rates)), key=losses.__getitem__)
    return losses, seconds


def best_rate(rates: list[float], losses: list[float]) -> float:
    """The lowest point of a parabola through the best rate and its neighbours, by the logarithm."""
    n = min(range(len(losses)), key=losses.__getitem__)
    if not 0 < n < len(losses) - 1 or not all(map(math.isfinite, losses[n - 1 : n + 2])):
        return rates[n]
    left, middle, right = losses[n - 1 : n + 2]
    shift = 0.5 * (left - right) / (left - 2 * middle + right)
    return float(rates[n] * (rates[n + 1] / rates[n]) ** shift)


def predicted(name: str, best: dict[int, float], width: int) -> float:
    """The best rate of a width, by those of narrower models."""
    logs = [math.log(rate) for rate in best.values()]
    if name != "standard" or len(best) == 1:
        return math.exp(fmean(logs))
    slope, start = linear_regression([math.log(w) for w in best], logs)
    return math.exp(start + slope * math.log(width))


def in_processes(
    jobs: list[tuple[str, int, list[float]]], args: argparse.Namespace
) -> list[tuple[list[float], float]]:
    """Losses of each job and its seconds; side by side on a CUDA device."""
    at_once = len(jobs) if torch.cuda.is_available() else 1
    given = ["--steps", "--layers", "--batch", "--length", "--seeds", "--cache"]
    same = [x for key in given for x in (key, str(getattr(args, key[2:])))]
    found: list[tuple[list[float], float]] = []
    for start in range(0, len(jobs), at_once):
        running = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.transfer", "--job", json.dumps(job), *same],
                cwd=ROOT,
                stdout=subprocess.PIPE,
            )
            for job in jobs[start : start + at_once]
        ]
        for process in running:
            out, _ = process.communicate()
            found.append(tuple(json.loads(out)))  # type: ignore[arg-type]
    return found


def main() -> None:
    """Print the losses, the best rates and the predictions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--widths", type=int, nargs="+", default=list(WIDTHS))
    parser.add_argument("--known", type=int, default=KNOWN)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=128, help="of a text, in tokens")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--cache", default=str(Path(tempfile.gettempdir()) / "transfer"))
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        print(json.dumps(curve(*args.job, args)))
        return
    TextTask.open(config_of("standard", 64, args, 1e-3), Path(args.cache))  # the data, once
    report(args)


def report(args: argparse.Namespace) -> None:
    """Search, predict and verify."""
    jobs: list[Any] = [(n, w, list(RATES)) for n in PARAMETRIZATIONS for w in args.widths]
    found = dict(zip([(n, w) for n, w, _ in jobs], in_processes(jobs, args), strict=True))
    print(
        f"{args.layers} layers, {args.steps} steps of {args.batch} x {args.length} tokens, "
        f"{args.seeds} seeds"
    )
    print("loss at rate", *(f"2^{math.log2(rate):.0f}" for rate in RATES), "best rate", sep="\t")
    widest = max(args.widths)
    verify: list[Any] = []
    for name in PARAMETRIZATIONS:
        best = {}
        for width in args.widths:
            losses, _ = found[name, width]
            best[width] = best_rate(list(RATES), losses)
            row = (f"{loss:.3f}" if math.isfinite(loss) else "-" for loss in losses)
            print(f"{name} {width}", *row, f"{best[width]:.5f}", sep="\t")
        known = {w: rate for w, rate in best.items() if w <= args.known}
        verify.append((name, widest, [predicted(name, known, widest)]))
    for (name, _, (rate,)), ((loss,), _) in zip(verify, in_processes(verify, args), strict=True):
        losses, direct = found[name, widest]
        cost = sum(found[name, w][1] for w in args.widths if w <= args.known)
        off = best_rate(list(RATES), losses) / rate
        print(
            f"{name}: predicted {rate:.5f} for width {widest}, a factor of {max(off, 1 / off):.2f} "
            f"from the best; loss {loss:.4f} against {min(losses):.4f} "
            f"({100 * (loss / min(losses) - 1):+.2f} %); narrow models took {cost:.0f} s, the "
            f"direct search {direct:.0f} s"
        )


if __name__ == "__main__":
    main()
