"""`tune export`, `generate` and `predict` on sweeps that are really trained, without Ray."""

from __future__ import annotations

import csv
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from results.export.format import Runtime
from results.records.trial import read_reports
from results.tracking.mlflow import model_registry
from results.tracking.mlflow.model_registry import KIND
from results.trial_paths import TrialPaths
from tests.cli.conftest import Tune
from tests.cli.trained import trained
from tests.trainables.examples import EXAMPLES
from trainables.base import Trainable
from trainables.digits.config import Digits

pytestmark = pytest.mark.slow


def train(name: str, metric: str, rates: list[float], storage: Path) -> None:
    """A trial for each learning rate."""
    sweep = {
        "name": name,
        "trainable": name,
        "metric": metric,
        "space": {"learning_rate": {"grid_search": rates}},
        "fixed": EXAMPLES[name].config,
        "scheduler": {"name": "none"},
        "tracking": {"name": "mlflow"},
    }
    trained(sweep, storage)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained sweeps; no test writes to them."""
    root = tmp_path_factory.mktemp("fresh")
    train("digits", "loss", [1e-2, 1e-5], root)
    train("causal_lm", "eval_loss", [1e-2, 1e-3], root)
    return root


@pytest.fixture(autouse=True)
def storage(tune: Tune, fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_STORAGE", str(fresh))


@pytest.fixture
def own(tune: Tune, fresh: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sweeps for a test that writes to them."""
    copy = shutil.copytree(fresh, tune.cwd / "own")
    monkeypatch.setenv("TUNE_STORAGE", str(copy))
    return copy


IN_ANOTHER_PROCESS = """
import json, sys
import mlflow, numpy as np, onnxruntime, torch
from transformers import AutoModelForImageClassification

exports, images = sys.argv[1], np.load(sys.argv[2])
pixels = torch.from_numpy(images)
with torch.no_grad():
    hf = AutoModelForImageClassification.from_pretrained(f"{exports}-hf", trust_remote_code=True)
    given = {
        "hf": hf(pixel_values=pixels).logits.numpy(),
        "pt2": torch.export.load(f"{exports}-pt2/model.pt2").module()(pixels).numpy(),
    }
session = onnxruntime.InferenceSession(f"{exports}-onnx/model.onnx")
given["onnx"] = session.run(None, {"pixels": images})[0]
for alias in ("candidate", "champion"):
    model = mlflow.pyfunc.load_model(f"models:/digits@{alias}")
    given[alias] = model.predict({"pixels": images})["logits"]
print(json.dumps({name: logits.tolist() for name, logits in given.items()}))
"""


def test_confirm_average_and_export_digits(tune: Tune, own: Path) -> None:
    """A process without this project predicts the same from the exported model."""
    images = tune.cwd / "images.npy"
    np.save(images, np.random.default_rng(1).random((3, 64), dtype=np.float32))

    def ours(*args: str) -> list[list[float]]:
        rows = [
            json.loads(x)
            for x in tune("predict", "digits", *args, "--input", images).out.splitlines()
        ]
        assert [row["class"] for row in rows] == [int(np.argmax(row["output"])) for row in rows]
        return [row["output"] for row in rows]

    assert "confirmed" in tune("best", "digits", "--confirm", "2", "--seeds", "3").out
    output = tune("export", "digits", "--to", "mlflow").out
    assert "version 1, @champion" in output, "the confirmation separates it from the other trial"
    assert "averaged 2 of 2" in tune("average", "digits", "--top", "2", "--method", "uniform").out
    soup = ("--soup", "uniform-2")
    made = tune("export", "digits", *soup, "--to", "hf,pt2,onnx,mlflow")
    assert "it/s" not in made.err, "no library draws its progress bar"
    assert made.out.count("verified   ") == 4
    assert "version 2, @candidate" in made.out
    assert "not @champion: the average is not significantly better" in made.out

    exports = own / "digits" / "results" / "exports" / "uniform-2"
    out = subprocess.run(
        [sys.executable, "-I", "-c", IN_ANOTHER_PROCESS, exports, images],
        env={"MLFLOW_TRACKING_URI": f"sqlite:///{own}/mlflow.db", "HF_HOME": str(tune.cwd / "hf")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    theirs = json.loads(out)
    average, single = ours(*soup), ours()
    for name, logits in theirs.items():
        expected = single if name == "champion" else average
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5, err_msg=name)
    assert not np.allclose(average, single, rtol=1e-2)
    check_cards(exports, own)


def check_cards(exports: Path, storage: Path) -> None:
    """The card of the average, in its folder and in MLflow's registry."""
    from mlflow import MlflowClient

    card = Path(f"{exports}-hf", "README.md").read_text()
    assert "on the test split, which the search did not see" in card
    assert "- data: fingerprint `" in card
    version = MlflowClient(f"sqlite:///{storage}/mlflow.db").get_model_version("digits", "2")
    onnx = Path(f"{exports}-onnx", "README.md").read_text()
    assert version.description == onnx[:5000]
    assert Path(version.source.removeprefix("file://"), "README.md").read_text() == onnx
    assert 'AutoModelForImageClassification.from_pretrained(".", trust_remote_code=True)' in card


def test_classic_layout_has_the_logs_and_the_model(tune: Tune, own: Path) -> None:
    out = tune("export", "digits", "--trial", "t0001", "--layout", "classic").out
    folder = own / "digits" / "results" / "exports" / "t0001-classic"
    assert f'from_pretrained("{folder}/final"' in out
    reports = read_reports(TrialPaths(own / "digits" / "trials" / "t0001"))
    log = json.loads((folder / "training_log.json").read_text())
    assert [(row["step"], row["loss"]) for row in log] == [
        (report.step, report.metrics["loss"]) for report in reports
    ]
    rows = list(csv.DictReader((folder / "metrics.csv").read_text().splitlines()))
    assert [float(row["loss"]) for row in rows] == [row["loss"] for row in log]
    assert (folder / "metrics.csv").read_text() == tune("show", "digits", "t0001", "--csv").out
    settings = json.loads((folder / "training_config.json").read_text())
    assert settings["config"]["learning_rate"] == 1e-5
    state = json.loads((folder / "final" / "training_state.json").read_text())
    assert (state["trial"], state["step"]) == ("t0001", log[-1]["step"])
    assert {"config.json", "model.safetensors"} <= {p.name for p in (folder / "final").iterdir()}
    assert "--force" in tune.refused("export", "digits", "--trial", "t0001", "--layout", "classic")


def test_copy_that_differs_is_not_registered(
    tune: Tune, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_registry, "RUNTIME", Runtime("run_mlflow.py", tolerance=-1.0))
    assert "not registered, the copy differs" in tune.refused("export", "digits", "--to", "mlflow")
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{own}/mlflow.db")
    assert list(client.search_model_versions("name = 'digits'")) == []


def test_generate_continues_a_text(tune: Tune, own: Path) -> None:
    more = tune("generate", "causal_lm", "--prompt", "def f(", "--max-new-tokens", "8").out
    assert more.startswith("def f(")
    assert len(more) > len("def f(\n")
    assert tune("generate", "causal_lm", "--prompt", "def f(", "--max-new-tokens", "8").out == more
    assert "writes no text" in tune.refused("generate", "digits", "--prompt", "x")
    lines = tune.write("prompts.txt", "def f(\n\nclass A:\n")
    every = tune("generate", "causal_lm", "--prompts", str(lines), "--max-new-tokens", "8").out
    found = [json.loads(line) for line in every.splitlines()]
    assert [line["prompt"] for line in found] == ["def f(", "class A:"]
    assert more == f"def f({found[0]['text']}\n"
    tune("export", "causal_lm", "--to", "hf", "--no-verify")
    (export,) = (own / "causal_lm" / "results" / "exports").glob("*-hf")
    sampled = ("--max-new-tokens", "8", "--temperature", "1", "--top-p", "0.9", "--seed", "3")
    drawn = tune("generate", str(export), "--prompt", "def f(", *sampled).out
    assert drawn == tune("generate", "causal_lm", "--prompt", "def f(", *sampled).out != more


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), "give either --prompt TEXT, or --prompts FILE with a prompt per line"),
        (("--prompts", "none.txt"), "--prompts none.txt: cannot be read"),
        (("--prompt", "a", "--top-p", "0.5"), "--top-p: has no effect with temperature 0"),
        (("--prompt", "a", "--seed", "0"), "--seed: has no effect with temperature 0"),
        (("--prompt", ""), "--prompt: is empty"),
        (("--prompt", "a" * 99), "positions"),
        (("--prompt", "a", "--chat"), "has no chat template"),
    ],
)
def test_generate_refuses_in_one_line(tune: Tune, options: tuple[str, ...], problem: str) -> None:
    refused = tune.refused("generate", "causal_lm", *options)
    assert problem in refused
    assert refused.count("\n") == 1


def test_predict_refuses_rows_of_another_shape(tune: Tune) -> None:
    np.save(tune.cwd / "wrong.npy", np.zeros((2, 63)))
    assert tune.refused("predict", "digits", "--input", "wrong.npy") == (
        "--input wrong.npy: must be rows of 64, is 2 x 63\n"
    )
    for text in ("[[1, 2", '{"rows": 1}'):
        tune.write("rows.json", text)
        assert "cannot be read" in tune.refused("predict", "digits", "--input", "rows.json")
    np.savetxt("rows.csv", np.arange(64.0)[None], delimiter=",")
    assert "csv:1: numbers" in tune.refused("predict", "digits", "--input", "rows.csv")
    assert "reads .npy, .csv or .json" in tune.refused("predict", "digits", "--input", "a.txt")


@pytest.mark.parametrize(
    ("sweep", "rows", "problem"),
    [
        ("digits", [[math.nan] * 64], "must be finite numbers"),
        ("digits", [["a"] * 64], "must be finite numbers"),
        ("digits", [[16.0] * 64], "the model takes numbers of -1 to 1 only"),
        ("digits", np.zeros((0, 64)), "has no row"),
        ("causal_lm", [[1, 2.5]], "must be whole numbers"),
        ("causal_lm", [[1, -1]], "the model takes numbers of 0 to "),
        ("causal_lm", [[1, 10**6]], "the model takes numbers of 0 to "),
        ("causal_lm", [[1] * 999], "numbers, not 999"),
    ],
)
def test_predict_refuses_what_no_input_of_the_model_is(
    tune: Tune, sweep: str, rows: object, problem: str
) -> None:
    np.save(tune.cwd / "rows.npy", rows)
    assert problem in tune.refused("predict", sweep, "--input", "rows.npy")


def test_name_of_a_registered_model_is_one_that_mlflow_takes(tune: Tune, own: Path) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{own}/mlflow.db")
    client.register_prompt("mine", "Hello.")
    client.create_registered_model("texts")
    client.create_model_version("texts", "file:///texts", tags={KIND: "input_ids to logits"})
    register = ("export", "digits", "--to", "mlflow", "--no-verify", "--name")
    assert "Names cannot contain '/'" in tune.refused(*register, "a/b")
    assert "already taken by a prompt" in tune.refused(*register, "mine")
    other = "--name texts: has models of input_ids to logits, not of pixels to logits"
    assert other in tune.refused(*register, "texts")
    assert tune.refused("export", "digits", "--to", "hf", "--name", "other") == (
        "--name other: is of --to mlflow, and has no effect with hf\n"
    )


def test_export_refuses_unknown_and_unsupported_formats(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tune.refused("export", "digits", "--to", "onxn") == (
        "--to onxn: no such format (did you mean 'onnx'?)\n"
    )
    assert tune.refused("export", "digits", "--to", "gguf") == (
        "--to gguf: supports LlamaForCausalLM, MistralForCausalLM, MixtralForCausalLM, "
        "Qwen2ForCausalLM, Qwen3ForCausalLM, Gemma3ForCausalLM, not DigitsForImageClassification\n"
    )
    assert tune.refused("export", "digits", "--to", "onnx,pt2", "--quant", "int8") == (
        "--quant int8: not for --to pt2; onnx takes int8, gguf takes q8_0, gguf takes q4_k_m\n"
    )
    assert tune.refused("export", "causal_lm", "--to", "gguf", "--quant", "q8_0") == (
        "--quant q8_0: needs a hidden_size of a multiple of 32, not 16\n"
    )
    assert "final/ holds one format" in tune.refused(
        "export", "digits", "--to", "hf,onnx", "--layout", "classic"
    )
    monkeypatch.setattr(Digits, "export_hf", Trainable.export_hf)
    assert tune.refused("export", "digits", "--to", "hf") == (
        "trainable digits: Digits has no export_hf(), which writes the transformers form\n"
    )
