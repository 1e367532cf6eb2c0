"""Where the settings of a rehearsal come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import load_sweep
from search_spaces.spec.resources import ResourcesSpec
from tests.cli.conftest import ROOT
from tuning.controller.resources.placement import Node, worker_slots
from tuning.doctor.settings import Settings, make_settings, read_environment, share_cpus

STORAGE = Path("/sweeps")


def settings(file: str | None = None, workers: int | None = None, **environ: str) -> Settings:
    environment = read_environment(environ)
    spec = load_sweep(ROOT / "search_spaces" / file).spec if file else None
    data = {"source": "files", "paths": ["/own/*.parquet", "/own/*.txt"]}
    configs = [{**spec.fixed, "data": data}] if spec else []
    return make_settings(environment, spec, configs, STORAGE, workers, 1.0)


def test_defaults() -> None:
    made = settings()
    assert (made.workers, made.parquet, made.model_name) == (2, (), "tiny")
    assert (made.learning_rate, made.max_seq_length) == (2e-5, 512)
    assert made.model.num_parameters < 1_000_000
    assert made.base_model == STORAGE / "doctor" / "base_models" / "tiny"
    assert made.worker_checkpoints == STORAGE / "doctor" / "worker_checkpoints" / "tiny"
    assert made.final_model == STORAGE / "doctor" / "model" / "tiny"


def test_environment_alone() -> None:
    made = settings(
        DATA_DIR="/blob",
        MODEL_NAME="openai-community/gpt2-large",
        NUM_WORKERS="20",
        CHECKPOINT_DIR="/blob/checkpoints",
        LEARNING_RATE="1e-3",
        MAX_SEQ_LENGTH="64",
        CONTAINER_NAME="c4",
    )
    assert made.workers == 20
    assert made.parquet == ("/blob/c4/*.parquet",)
    assert made.base_model == Path("/blob/checkpoints/base_models/openai-community/gpt2-large")
    assert (made.learning_rate, made.max_seq_length, made.container) == (1e-3, 64, "c4")


def test_parquet_path_goes_before_data_dir() -> None:
    both = settings(DATA_DIR="/blob", PARQUET_PATH="/mine/*.parquet")
    assert both.parquet == ("/mine/*.parquet",)


def test_option_goes_before_environment_and_that_before_the_file() -> None:
    assert settings("llm.yaml").parquet == ("/own/*.parquet",)
    made = settings("llm.yaml", PARQUET_PATH="/mine/*.parquet", NUM_WORKERS="3")
    assert (made.parquet, made.workers) == (("/mine/*.parquet",), 3)
    assert settings("llm.yaml", workers=5, NUM_WORKERS="3").workers == 5


def test_model_of_a_sweep_is_its_own_and_named_by_its_shape() -> None:
    made = settings("llm.yaml")
    assert made.model.vocab_size == 512
    assert made.model_name.startswith("llm-")
    assert settings("llm.yaml", MODEL_NAME="tiny").model_name == "tiny"


def test_changed_folder_of_a_model_is_another_model(tmp_path: Path) -> None:
    config = tmp_path / "mine" / "config.json"
    config.parent.mkdir()
    names = []
    for text in ("{}", "{ }"):
        config.with_suffix(".new").write_text(text)
        config.with_suffix(".new").replace(config)
        names.append(settings(MODEL_NAME=str(config.parent)).model_name)
    assert names[0] != names[1]
    assert all(name.startswith("mine-") for name in names)


def test_all_wrong_values_are_reported_at_once() -> None:
    with pytest.raises(UserError) as caught:
        read_environment({"NUM_WORKERS": "two", "MAX_SEQ_LENGTH": "1", "LEARNING_RATE": "0"})
    assert sorted(caught.value.problems) == [
        "LEARNING_RATE: must be > 0.0, got '0'",
        "MAX_SEQ_LENGTH: must be >= 2, got '1'",
        "NUM_WORKERS: must be a whole number, got 'two'",
    ]


def test_model_that_is_no_folder_is_refused() -> None:
    with pytest.raises(UserError, match=r"model \.\./x: no such folder with config.json"):
        settings(MODEL_NAME="../x")


@pytest.mark.parametrize(("workers", "cpus"), [(20, [2]), (7, [3, 3]), (12, [2]), (3, [2.5])])
def test_cpus_are_shared_so_that_all_workers_fit(workers: int, cpus: list[float]) -> None:
    nodes = [Node(count, 0) for count in cpus]
    shared = share_cpus(ResourcesSpec(workers=workers), nodes)
    assert worker_slots(shared, 0, nodes) >= workers
    assert share_cpus(ResourcesSpec(workers=2), [Node(2, 0)]).cpus_per_worker == 1
