"""A sweep of the language model on sharded ranks: winner, soup, exports, pages in MLflow."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from results.analysis import confirmation
from results.checkpoints.commit import newest_intact
from results.records import environment
from results.records.trial import read_trial
from search_spaces.loading.sweep_file import load_sweep
from tests.ray.conftest import ENV, LONGEST_S, Tune, end
from trainables.base import Split
from trainables.registry import resolve

SHIPPED = Path(__file__).parents[2] / "search_spaces" / "llm.yaml"
SMALL = (
    "budget.trials=3",
    "fixed.hidden_size=32",
    "fixed.sequence_length=32",
    "fixed.max_steps=12",
    "fixed.eval_every=4",
    "fixed.data={max_bytes: 200000}",
    "space.batch_size=8",
    "scheduler.grace_period=4",
    "scheduler.max_t=12",
    "checkpoint.every=4",
    "resources.layout=fsdp",
)

ALL = 1_000_000  # sequences: evaluates every one

LOSS_BY_TRANSFORMERS = """
import json, sys
import numpy as np, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
tokens = torch.from_numpy(np.load(sys.argv[1]).astype(np.int64))
text = "def main() -> None:\\n    return None\\n"
for folder in sys.argv[2:]:
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        logits = model(tokens[:, :-1]).logits.double()
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    print(json.dumps([loss.item(), tokenizer.decode(tokenizer(text)["input_ids"]) == text]))
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, address: str) -> Tune:
    tune = Tune(tmp_path_factory.mktemp("llm"), address)
    changes = [arg for change in SMALL for arg in ("--set", change)]
    tune.killed_at("driver:heard:5", "run", SHIPPED, *changes)
    out = tune("resume", "llm")
    assert "winner " in out
    return tune


def test_ranks_share_the_model_and_the_killed_sweep_goes_on(swept: Tune) -> None:
    records = swept.trials("llm")
    assert max(len(r.attempts) for r in records) == 2
    for record in records:
        curve = [report.step for report in swept.curve("llm", record.id)]
        assert curve == sorted(set(curve))
        newest = newest_intact(swept.paths("llm").trial(record.id))
        assert newest is not None
        written = {name for name in newest.manifest.files if name.startswith("shards/model_")}
        assert len(written) == 2, "one file of each rank"


def losses_in_a_fresh_process(tune: Tune, exported: list[Path]) -> list[float]:
    """Mean loss of each export over the test split, by plain transformers."""
    (tokens,) = (tune.cwd / "sweeps" / "cache").glob("*/test.npy")
    run = subprocess.run(
        [sys.executable, "-c", LOSS_BY_TRANSFORMERS, tokens, *exported],
        capture_output=True,
        text=True,
        check=True,
        env=ENV,
    )
    found = [json.loads(line) for line in run.stdout.splitlines()]
    assert all(text_survives for _, text_survives in found)
    return [loss for loss, _ in found]


def own_loss(tune: Tune, weights: Path, config: dict[str, object]) -> float:
    trainable = resolve("causal_lm")
    validated = trainable.Config.model_validate(config)
    return trainable.evaluate(validated, weights, Split.TEST, tune.cwd / "sweeps" / "cache")[
        "eval_loss"
    ]


def exported(output: str) -> Path:
    """The first folder that `tune export` names."""
    return Path(re.search(r"exported \S+ to (.*)", output).group(1))


def test_exports_have_the_losses_of_their_models(swept: Tune) -> None:
    """The winner and an average, verified in a fresh process before they are published.

    Every format of a model has its test in `tests/results/export`.
    """
    best = swept.best("llm")
    ours = [Path(best["checkpoint"])]
    theirs = [exported(swept("export", "llm", "--to", "hf"))]
    out = swept("average", "llm", "--top", "3", "--method", "uniform")
    assert "on the test split, which the search did not see" in out
    ours.append(Path(re.search(r"^soup (.*)$", out, re.MULTILINE).group(1)))
    output = swept("export", "llm", "--soup", ours[-1].name, "--to", "hf,gguf")
    theirs.append(exported(output))
    assert output.count("verified   ") == 3, "llama.cpp verifies the GGUF file too"
    assert output.count("same token ids") == 2, "of transformers and llama.cpp"

    config = {**best["config"], "eval_sequences": ALL}
    expected = [own_loss(swept, weights, config) for weights in ours]
    assert losses_in_a_fresh_process(swept, theirs) == pytest.approx(expected, rel=1e-5)


def test_best_confirm_trains_on_workers_of_the_sweep(swept: Tune) -> None:
    output = swept("best", "llm", "--confirm", "2", "--seeds", "1")
    assert "2 of 2, " in output
    assert "test split" in output
    paths = swept.paths("llm")
    made = confirmation.read(paths)
    assert made is not None
    for one in made.trials:
        found = environment.read(paths.retrained(one.trial, made.seeds[0]), 1)
        assert found is not None
        assert found.hardware["workers"] == "2"


def test_trials_share_one_tokenised_cache(swept: Tune) -> None:
    assert len(list((swept.cwd / "sweeps" / "cache").glob("*/test.npy"))) == 1


def test_spec_file_loads_as_it_was_run(swept: Tune) -> None:
    spec = load_sweep(swept.paths("llm").spec).spec
    assert (spec.budget.trials, spec.fixed["max_steps"]) == (3, 12)
    assert "--set budget.trials=3" in swept.paths("llm").spec.read_text()


def test_ui_serves_the_runs_their_comparison_and_curves(swept: Tune, tmp_path: Path) -> None:
    ui = swept.start("ui", "llm", "--port", "0", "--no-browser")
    try:
        runs = ui.stdout.readline().strip()
        assert re.fullmatch(r"http://127.0.0.1:\d+/runs", runs)
        pages = dict(ui.stdout.readline().split() for _ in range(2))
        listed = page_text(runs, ">t0002<", tmp_path)
        page = page_text(pages["comparison"], 'class="trace scatter', tmp_path)
        drawn = page_text(pages["curves"], 'class="trace scatter', tmp_path)
    finally:
        end(ui, 2)
    assert all(f">t{i:04d}<" in listed and f">t{i:04d}<" in page for i in range(3))
    assert "eval_loss" in listed, "a column"
    assert "Ask a question" not in listed, "of an open assistant"
    assert "Playground" not in listed, "of GenAI"
    assert "Parallel Coordinates" in page
    first = swept.paths("llm").trial_ids()[0]
    params = read_trial(swept.paths("llm").trial(first)).params
    assert all(f">{name}<" in page for name in params), "axes"
    assert all(f"t{i:04d} (eval_loss)" in drawn for i in range(3))
    assert drawn.count('class="trace scatter') >= 3


def page_text(url: str, sign: str, tmp_path: Path) -> str:
    """The page as a real browser shows it, once it has drawn `sign`."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("needs Chromium")
    quiet = [
        "headless",
        "no-sandbox",
        "disable-gpu",
        "disable-quic",
        "no-first-run",
        "disable-sync",
    ]
    quiet += ["disable-background-networking", "disable-component-update", "disable-dev-shm-usage"]
    command = [
        browser,
        *(f"--{flag}" for flag in quiet),
        f"--user-data-dir={tmp_path}/profile",
        "--virtual-time-budget=30000",
        "--window-size=1400,1600",
        "--dump-dom",
        url,
    ]
    for _ in range(4):  # the browser stops when the page is idle, drawn or not
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=LONGEST_S
        )
        if sign in done.stdout:
            return done.stdout
    pytest.fail(f"{url} never showed '{sign}'")
