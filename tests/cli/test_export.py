"""A digits and a language-model sweep, trained for real without Ray, exported and put to use."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from results.paths import Storage, SweepPaths
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


def train_sweep(name: str, metric: str, storage: Path) -> SweepPaths:
    """Two trials that differ in the learning rate."""
    spec = SweepSpec.model_validate(
        {
            "name": name,
            "trainable": name,
            "metric": metric,
            "space": {"learning_rate": {"grid_search": [1e-2, 1e-3]}},
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
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sweeps")
    train_sweep("digits", "loss", root)
    train_sweep("causal_lm", "eval_loss", root)
    return root


@pytest.fixture(autouse=True)
def there(tune: Tune, storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_STORAGE", str(storage))


def test_digits_to_onnx_and_the_registry(tune: Tune, storage: Path) -> None:
    said = tune("export", "digits", "--to", "onnx,mlflow", "--force").out
    assert "verified   onnxruntime " in said
    assert "registered " in said
    assert "not @champion: " in said
    # Another process, which knows the registry only.
    images = tune.cwd / "images.npy"
    np.save(images, np.random.default_rng(0).random((5, 64), dtype=np.float32))
    script = (
        "import sys, mlflow, numpy as np\n"
        "model = mlflow.pyfunc.load_model('models:/digits@candidate')\n"
        "print(model.predict({'pixels': np.load(sys.argv[1])})['logits'].argmax(1).tolist())"
    )
    out = subprocess.run(
        [sys.executable, "-c", script, images],
        env={"MLFLOW_TRACKING_URI": f"sqlite:///{storage}/mlflow.db", "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    rows = [
        json.loads(line)
        for line in tune("predict", "digits", "--input", images).out.split("\n")
        if line
    ]
    assert [row["class"] for row in rows] == json.loads(out)
    assert all(len(row["output"]) == 10 for row in rows)


def test_digits_all_the_way(tune: Tune) -> None:
    """Confirmed on the test split, averaged, and what is exported predicts what the winner does."""
    assert "confirmed" in tune("best", "digits", "--confirm", "2", "--seeds", "2").out
    assert "test split" in tune("average", "digits", "--top", "2").out
    out = tune("export", "digits", "--to", "pt2,onnx", "--force").out
    assert out.count("verified   ") == 2
    folder = Path(re.search(r"exported \S+ to (.*-pt2)$", out, re.MULTILINE)[1])
    images = tune.cwd / "images.npy"
    np.save(images, np.random.default_rng(1).random((3, 64), dtype=np.float32))
    own = [
        json.loads(r)["output"]
        for r in tune("predict", "digits", "--input", images).out.splitlines()
    ]
    script = (
        "import sys, torch, numpy as np\n"
        "module = torch.export.load(sys.argv[1]).module()\n"
        "print(module(torch.from_numpy(np.load(sys.argv[2]))).tolist())"
    )
    command = [sys.executable, "-c", script, folder / "model.pt2", images]
    alien = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    np.testing.assert_allclose(json.loads(alien), own, rtol=1e-5)


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
