"""A digits and a language-model sweep, trained for real without Ray, exported and put to use."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from results.export.formats import Runtime
from results.paths import Storage, SweepPaths
from results.tracking import registry
from search_spaces.load import LoadedSweep, Source
from search_spaces.schema import SweepSpec
from tests.cli.conftest import Tune
from tests.trainables.examples import EXAMPLES
from tests.tuning.simulate import open_run
from tests.tuning.trained import train_all
from tuning.execution.folder import create

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy"),  # MLflow's own
]


def train_sweep(name: str, metric: str, rates: list[float], storage: Path) -> SweepPaths:
    """A trial for each learning rate."""
    spec = SweepSpec.model_validate(
        {
            "name": name,
            "trainable": name,
            "metric": metric,
            "space": {"learning_rate": {"grid_search": rates}},
            "fixed": EXAMPLES[name].config,
            "scheduler": {"name": "none"},
            "tracking": {"name": "mlflow"},
        }
    )
    paths = create(LoadedSweep(spec, Source("x.yaml"), Path("x.yaml"), ()), None, str(storage))
    run = open_run(paths.root, spec)
    run._cache = str(Storage(storage).cache)
    train_all(run)
    return paths


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained sweeps, in which nothing is written."""
    root = tmp_path_factory.mktemp("fresh")
    train_sweep("digits", "loss", [1e-2, 1e-5], root)
    train_sweep("causal_lm", "eval_loss", [1e-2, 1e-3], root)
    return root


@pytest.fixture(scope="module")
def storage(fresh: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(fresh, tmp_path_factory.mktemp("sweeps") / "shared")


@pytest.fixture(autouse=True)
def there(tune: Tune, storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_STORAGE", str(storage))


def test_digits_to_onnx(tune: Tune) -> None:
    said = tune("export", "digits", "--to", "onnx", "--force").out
    assert "verified   onnxruntime " in said
    images = tune.cwd / "images.npy"
    np.save(images, np.random.default_rng(0).random((5, 64), dtype=np.float32))
    lines = tune("predict", "digits", "--input", images).lines
    rows = [json.loads(" ".join(words)) for words in lines if words]
    assert [row["class"] for row in rows] == [int(np.argmax(row["output"])) for row in rows]
    assert [len(row["output"]) for row in rows] == [10] * 5


@pytest.fixture
def own(tune: Tune, fresh: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sweeps: what is confirmed and averaged in it is seen by no other test."""
    copy = shutil.copytree(fresh, tune.cwd / "own")
    monkeypatch.setenv("TUNE_STORAGE", str(copy))
    return copy


TORCH = """
import sys, torch, numpy as np
module = torch.export.load(sys.argv[1]).module()
print(module(torch.from_numpy(np.load(sys.argv[2]))).tolist())
"""
ONNX = """
import sys, onnxruntime, numpy as np
session = onnxruntime.InferenceSession(sys.argv[1])
print(session.run(None, {"pixels": np.load(sys.argv[2])})[0].tolist())
"""
REGISTRY = """
import sys, mlflow, numpy as np
model = mlflow.pyfunc.load_model(sys.argv[1])
print(model.predict({"pixels": np.load(sys.argv[2])})["logits"].tolist())
"""


def test_digits_all_the_way(tune: Tune, own: Path) -> None:
    """Confirmed, averaged, exported; processes that have nothing of ours predict what we do."""
    images = tune.cwd / "images.npy"
    np.save(images, np.random.default_rng(1).random((3, 64), dtype=np.float32))

    def predicted(script: str, model: str | Path) -> list[list[float]]:
        out = subprocess.run(
            [sys.executable, "-c", script, model, images],
            env={"MLFLOW_TRACKING_URI": f"sqlite:///{own}/mlflow.db", "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        found: list[list[float]] = json.loads(out)
        return found

    def ours(*args: str) -> list[list[float]]:
        lines = tune("predict", "digits", *args, "--input", images).out.splitlines()
        return [json.loads(line)["output"] for line in lines]

    assert "confirmed" in tune("best", "digits", "--confirm", "2", "--seeds", "3").out
    said = tune("average", "digits", "--top", "2", "--method", "uniform").out
    assert "averaged 2 of 2" in said
    soup = ("--soup", "uniform-2")
    out = tune("export", "digits", *soup, "--to", "pt2,onnx,mlflow").out
    assert out.count("verified   ") == 3
    assert "@candidate" in out
    assert "not @champion: the average is not surely better" in out
    folders = own / "digits" / "results" / "exports"
    for script, model in (
        (TORCH, folders / "uniform-2-pt2" / "model.pt2"),
        (ONNX, folders / "uniform-2-onnx" / "model.onnx"),
        (REGISTRY, "models:/digits@candidate"),
    ):
        np.testing.assert_allclose(predicted(script, model), ours(*soup), rtol=1e-4, atol=1e-5)
    card = (folders / "uniform-2-onnx" / "README.md").read_text()
    assert "on the test split, which the search did not see" in card
    assert "- data: fingerprint `" in card

    out = tune("export", "digits", "--to", "mlflow").out
    assert "version 2, @champion" in out, "the confirmation told it apart from the other trial"
    champion = predicted(REGISTRY, "models:/digits@champion")
    np.testing.assert_allclose(champion, ours(), rtol=1e-4, atol=1e-5)
    assert not np.allclose(champion, ours(*soup), rtol=1e-2)


def test_a_copy_that_differs_is_not_registered(
    tune: Tune, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_RUNTIME", Runtime("run_mlflow.py", tolerance=-1.0))
    assert "not registered, the copy differs" in tune.refused("export", "digits", "--to", "mlflow")
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{own}/mlflow.db")
    assert list(client.search_model_versions("name = 'digits'")) == []


def test_a_language_model_goes_on_with_a_text(tune: Tune) -> None:
    more = tune("generate", "causal_lm", "--prompt", "def f(", "--max-new-tokens", "8").out
    assert more.startswith("def f(")
    assert len(more) > len("def f(\n")
    assert tune("generate", "causal_lm", "--prompt", "def f(", "--max-new-tokens", "8").out == more
    assert "writes no text" in tune.refused("generate", "digits", "--prompt", "x")


def test_rows_that_do_not_fit_are_refused(tune: Tune) -> None:
    np.save(tune.cwd / "wrong.npy", np.zeros((2, 63)))
    assert tune.refused("predict", "digits", "--input", "wrong.npy") == (
        "--input wrong.npy: must be rows of 64, is 2 x 63\n"
    )
    tune.write("rows.json", "[[1, 2")
    assert "cannot be read" in tune.refused("predict", "digits", "--input", "rows.json")
    assert "reads .npy, .csv or .json" in tune.refused("predict", "digits", "--input", "a.txt")


def test_formats_that_are_not_there(tune: Tune) -> None:
    assert tune.refused("export", "digits", "--to", "onxn") == (
        "--to onxn: no such format (did you mean 'onnx'?)\n"
    )
    assert "no transformers form" in tune.refused("export", "digits", "--to", "hf")
