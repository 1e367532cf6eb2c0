"""`tune average` on models that are really trained."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from results.averaging.soup.scoring import read_soup
from results.checkpoints.commit import newest_intact, verify
from results.paths import SweepPaths
from results.records.spec_file import read_spec
from results.records.trial import read_trial
from results.sweep_folder.lock import acquire_lock
from tests.cli.conftest import Tune
from tests.cli.trained import BATCH_NORM, trained
from trainables.registry import resolve
from tuning.evaluation.load_model import config_of


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> SweepPaths:
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("TUNE_STORAGE", raising=False)
        return trained(BATCH_NORM)


@pytest.fixture
def paths(sweep: SweepPaths, tune: Tune) -> SweepPaths:
    """A copy of the trained sweep in the folder where the program runs."""
    shutil.copytree(sweep.root.parent, tune.cwd / "sweeps")
    return SweepPaths(tune.cwd / "sweeps" / sweep.name)


def newest(paths: SweepPaths, trial_id: str) -> Path:
    found = newest_intact(paths.trial(trial_id))
    assert found is not None
    return found.folder


def test_average_prints_single_uniform_and_greedy(tune: Tune, paths: SweepPaths) -> None:
    output = tune("average", "trained", "--top", "3").lines
    title = "accuracy on the test split, which the search did not see (max):"
    assert output[0] == title.split()
    assert [words[0] for words in output[1:4]] == ["single", "uniform", "greedy"]
    made = read_soup(paths.soup("greedy-3"))
    low, high = made.scores["single"].interval or (0, 0)
    single = made.scores["single"].mean
    assert output[1] == ["single", f"{single:.4g}", f"[{low:.4g},", f"{high:.4g}]"]
    assert made.promoted == (output[5][:2] == ["better", "than"])
    assert output[-1] == ["soup", str(paths.soup("greedy-3"))]


def test_trials_share_their_initial_weights(paths: SweepPaths) -> None:
    assert len({(newest(paths, t) / "lineage.json").read_text() for t in paths.trial_ids()}) == 1


def test_average_refuses_trials_with_different_initial_weights(tune: Tune) -> None:
    search = {"startup_trials": 3, "shared_init": False}
    paths = trained(BATCH_NORM, name="apart", search=search, budget={"trials": 2})
    output = tune.refused("average", "apart")
    assert "started from different initial weights (share them with search.shared_init" in output
    forced = tune("average", "apart", "--method", "uniform", "--force").out
    assert "no better than" in forced
    gain = read_soup(paths.soup("uniform-2")).gain
    assert gain.interval is not None
    assert f"95 % interval [{gain.interval[0]:.4g}, {gain.interval[1]:.4g}]" in forced


def test_average_recalibrates_batch_norm(tune: Tune, paths: SweepPaths) -> None:
    tune("average", "trained", "--method", "uniform")
    soup = load_file(paths.soup("uniform-3") / "model.safetensors")
    single = load_file(newest(paths, "t0000") / "model.safetensors")
    assert soup["1.num_batches_tracked"] == 9, "batches of the train split"
    assert single["1.num_batches_tracked"] == 4 * 16


def test_average_takes_every_source_and_method(tune: Tune, paths: SweepPaths) -> None:
    tune("average", "trained", "--trials", "t0002,t0000", "--method", "slerp", "--weights", "1,3")
    made = read_soup(paths.soup("slerp-t0002-t0000"))
    assert [(c["label"], c["share"]) for c in made.candidates] == [("t0002", 0.25), ("t0000", 0.75)]
    tune("average", "trained", "--last", "3", "--trial", "t0001", "--method", "ema")
    assert read_soup(paths.soup("ema-t0001-last-3")).members == ("t0001@2", "t0001@3", "t0001@4")
    tune("average", "trained", "--method", "dare_ties", "--set", "density=0.7", "--name", "mine")
    made = read_soup(paths.soup("mine"))
    assert made.options["density"] == 0.7
    assert made.scores.keys() == {"single", "uniform", "greedy", "dare_ties"}
    tune("average", "trained", "--method", "uniform", "--dtype", "bfloat16", "--name", "half")
    half = load_file(paths.soup("half") / "model.safetensors")
    assert half["0.weight"].dtype == torch.bfloat16
    exported = tune("export", "trained", "--soup", "half", "--to", "hf", "--no-verify").out
    assert "\ndtype      float32; stored as BF16, which --to safetensors keeps\n" in exported
    tune("average", "trained", "--max-shard-size", "2kB", "--name", "parts")
    assert "model.safetensors.index.json" in verify(paths.soup("parts")).files
    exported = tune("export", "trained", "--soup", "parts", "--to", "hf", "--no-verify").out
    assert "dtype" not in exported


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["--method", "tise"], "unknown method 'tise' (did you mean 'ties'?)"),
        (["--method", "ties", "--set", "denisty=1"], "unknown option 'denisty' (did you mean 'den"),
        (["--method", "ties", "--set", "density"], "--set density: must be KEY=VALUE"),
        (["--method", "slerp"], "method slerp interpolates between 2 models, not 3"),
        (["--method", "uniform", "--weights", "1,2,3"], "method uniform takes no weights"),
        (["--trials", "t0000,t0009"], "trained: no trial 't0009'"),
        (["--trials", "t0000,t0000"], "--trials t0000,t0000: must be two or more different trials"),
        (["--trials", "t0000"], "--trials t0000: must be two or more different trials"),
        (["--trials", "t0000,t0001", "--last", "3"], "--clients exclude each other"),
        (["--trials", "t0000,t0001", "--top", "2"], "--top, --trials, --last (with --trial)"),
        (["--clients", "t0000"], "holds no clients; a federated trial keeps them"),
        (["--dtype", "bf16"], "'bf16' is not one of"),
        (["--max-memory", "much"], "--max-memory: must be a size like 64MB or 5GB, got 'much'"),
        (["--max-memory", "1kB"], "needs at least"),
        (["--name", "../mine"], "--name: must be a plain name"),
    ],
)
def test_average_refuses_wrong_options(
    tune: Tune, paths: SweepPaths, args: list[str], reason: str
) -> None:
    assert reason in tune.refused("average", "trained", *args)
    assert not list(paths.soup("x").parent.glob("*"))


def test_average_takes_a_base_folder(tune: Tune, paths: SweepPaths) -> None:
    first = newest(paths, "t0000")
    spec = read_spec(paths)
    trainable = resolve(spec.trainable)
    base = tune.cwd / "base"
    base.mkdir()
    trainable.initial(config_of(spec, trainable, read_trial(paths.trial("t0000"))), base, tune.cwd)
    ties = ["average", "trained", "--method", "ties"]
    tune(*ties)
    tune(*ties, "--base", base, "--name", "based")
    plain, based = (paths.soup(n) / "model.safetensors" for n in ("ties-3", "based"))
    assert plain.read_bytes() == based.read_bytes()
    output = tune.refused(*ties, "--base", first)
    assert "t0000 did not start from these weights (another base, or code" in output
    assert "soup " in tune(*ties, "--base", first, "--force").out
    assert "has no task vectors" in tune.refused("average", "trained", "--base", base)
    assert "no model.safetensors in it" in tune.refused(*ties, "--base", tune.cwd)
    save_file({"w": torch.zeros(1)}, base / "model.safetensors")
    assert "cannot have started from it: it has no tensor" in tune.refused(*ties, "--base", base)


def test_average_is_a_run_in_mlflow(tune: Tune) -> None:
    paths = trained(BATCH_NORM, name="tracked", tracking={"name": "mlflow"}, budget={"trials": 2})
    command = ["average", "tracked", "--method", "uniform"]
    with acquire_lock(paths.lock):
        output = tune(*command).out
    assert "not in MLflow yet (" in output
    assert "later: tune sync tracked" in output
    assert not (paths.root.parent / "mlflow.db").exists()
    for _ in range(2):
        assert "not in MLflow yet" not in tune(*command).out
    with sqlite3.connect(paths.root.parent / "mlflow.db") as db:
        runs = db.execute("select name from runs order by name").fetchall()
        query = "select value from metrics where key = 'test/accuracy'"
        values = db.execute(query).fetchall()
    assert runs == [("t0000",), ("t0001",), ("tracked",), ("uniform-2",)]
    assert values == [(read_soup(paths.soup("uniform-2")).scores["uniform"].mean,)]


def test_average_of_the_clients_of_a_federated_trial(tune: Tune) -> None:
    client = {"hidden_units": 8, "num_layers": 1, "batch_size": 16}
    paths = trained(
        BATCH_NORM,
        name="clients",
        trainable="federated",
        space={"client": {"learning_rate": {"loguniform": [3e-3, 3e-2]}}},
        fixed={"client": client, "clients": 3, "rounds": 2, "keep_clients": True},
        scheduler={"name": "none", "max_t": 2},
        budget={"trials": 1},
    )
    options = ["--clients", "t0000", "--method", "weighted", "--weights", "examples"]
    output = tune("average", "clients", *options).out
    assert "averaged 3 of 3: t0000@2/00000, t0000@2/00001, t0000@2/00002" in output
    soup = load_file(paths.soup("weighted-t0000-clients") / "model.safetensors")
    fedavg = load_file(newest(paths, "t0000") / "model.safetensors")
    assert all((soup[name] == fedavg[name]).all() for name in soup)
