"""Which pre-trained model to fine-tune: the one with the smallest loss, or the best after that.

    python -m benchmarks.choose_by [--seeds 5] [--trials 6]

For each seed one pipeline, which `tune run` runs: four models are pre-trained; one stage fine-tunes
the one with the smallest loss, another with as many trials any of the best three (`top(3)`), of
which the winner is the best model after fine-tuning. Both winners are evaluated on the test split.
The seed changes the stories, the proposals, the initial weights and the order of the data. Prints
the loss of each, and the mean difference with its 95 % interval (Student's t).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from results.analysis.selection import rank_candidates
from results.models.stages import read_stages
from results.records.pipeline import PipelinePaths
from results.records.spec_file import read_spec
from results.records.trial import read_trials

FILE = """
name: choose_by
stages:
  - {{name: data, kind: data, source: stories, stories: 6000, near_duplicates: null, seed: {seed}}}
  - name: pretrain
    kind: train
    sweep:
      trainable: causal_lm
      metric: eval_loss
      space:
        learning_rate: {{loguniform: [1.0e-3, 3.0e-2]}}
        weight_decay: {{uniform: [0, 0.3]}}
        schedule: {{choice: [cosine, wsd, constant]}}
      fixed: {{hidden_size: 64, num_layers: 2, vocab_size: 512, sequence_length: 192,
               batch_size: 16, max_steps: 100, eval_every: 50, eval_sequences: 300,
               data: {{source: files, paths: "{{data}}/text/*.jsonl", splits: file_names}}}}
      scheduler: {{name: none}}
      budget: {{trials: 4}}
      resources: {{workers: 1}}
      tracking: {{name: none}}
      seed: {seed}
  - name: by_own_loss
    kind: train
    init: pretrain.winner
    sweep: &sft
      trainable: sft
      metric: eval_loss
      space: {{learning_rate: {{loguniform: [1.0e-3, 1.0e-2]}}}}
      fixed: {{sequence_length: 192, batch_size: 8, max_steps: 40, eval_every: 20, eval_answers: 0,
               eval_sequences: 300,
               data: {{source: files, paths: "{{data}}/instructions/*.jsonl", splits: file_names}}}}
      search: {{name: random}}
      scheduler: {{name: none}}
      budget: {{trials: {trials}}}
      resources: {{workers: 1}}
      tracking: {{name: none}}
      seed: {seed}
  - {{name: by_later_loss, kind: train, init: pretrain.top(3), sweep: *sft}}
  - {{name: test_own, kind: evaluate, model: by_own_loss.winner}}
  - {{name: test_later, kind: evaluate, model: by_later_loss.winner}}
"""
HEAD = ("seed", "smallest own loss", "best of top(3)", "difference", "its model's place", "seconds")


def one_seed(seed: int, trials: int, storage: Path) -> tuple[float, float, int]:
    """Run the pipeline; returns both losses on the test split, and the place of the other model."""
    file = storage / f"seed{seed}.yaml"
    file.write_text(FILE.format(seed=seed, trials=trials))
    command = [sys.executable, "-m", "tuning", "run", str(file), "--name", file.stem]
    done = subprocess.run(
        [*command, "--storage", str(storage)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    paths = PipelinePaths(storage / file.stem)
    stages = read_stages(paths).stages
    own, later = (stages[name].result["eval_loss"] for name in ("test_own", "test_later"))
    return own, later, _place(paths, stages["by_later_loss"].result["winner"])


def _place(paths: PipelinePaths, trial: str) -> int:
    """Place by its own loss, from 1, of the model that a fine-tuned one began with."""
    trials = {record.id: record for record in read_trials(paths.sweep("by_later_loss"))}
    origin = Path(trials[trial].params["model_name_or_path"]).name.removesuffix("-hf")
    pretrain = paths.sweep("pretrain")
    spec = read_spec(pretrain)
    ranked = rank_candidates(pretrain, spec, spec.select)
    return [line.record.id for line in ranked].index(origin) + 1


def half_interval(values: list[float]) -> float:
    """Half the width of the mean's 95 % interval."""
    from scipy.stats import t

    error = statistics.stdev(values) / len(values) ** 0.5
    return float(t.ppf(0.975, len(values) - 1)) * error


def main() -> None:
    """Print the table, a line as soon as a seed is done."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choose_by", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=6, help="of each fine-tuning stage")
    given = parser.parse_args()
    for line in (HEAD, ["---"] * len(HEAD)):
        print(f"| {' | '.join(line)} |", flush=True)
    differences = []
    with tempfile.TemporaryDirectory(prefix="tune-choose-") as folder:
        for seed in range(given.seeds):
            began = time.monotonic()
            own, later, place = one_seed(seed, given.trials, Path(folder))
            differences.append(later - own)
            cells = f"{seed} | {own:.4f} | {later:.4f} | {later - own:+.4f} | {place}"
            print(f"| {cells} | {time.monotonic() - began:.0f} |", flush=True)
    if given.seeds > 1:
        mean, half = statistics.mean(differences), half_interval(differences)
        print(f"\nmean difference {mean:+.4f} ± {half:.4f} nats per token (95 %)")


if __name__ == "__main__":
    main()
