"""Exports appear whole, and replace nothing they should not."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from results.checkpoints.commit import commit, create_staging, verify
from results.export.folder import Card, export
from results.export.formats import FORMATS, Model
from search_spaces.errors import UserError

CARD = Card(
    "llm-1",
    "eval_loss",
    1.25,
    ("t0003", "t0001"),
    {"lr": 1e-3, "layers": [1, 2]},
    ("data: fingerprint `abc`",),
    "on the test split",
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "staged"
    create_staging(folder)
    (folder / "model.safetensors").write_text("weights")
    commit(folder, tmp_path / "step_00000001", step=1)
    return tmp_path / "step_00000001"


def write(folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_text("weights")


def export_hf(
    source: Path,
    target: Path,
    writer: Callable[[Path], None],
    card: Card = CARD,
    force: bool = False,
) -> Path:
    def load() -> NoReturn:
        raise AssertionError("nothing to judge")

    export(source, target, "hf", Model(load, writer), card, check=False, force=force)
    return target


def test_the_card_says_whence(source: Path, tmp_path: Path) -> None:
    target = export_hf(source, tmp_path / "out" / "hf", write, CARD)
    text = (target / "README.md").read_text()
    assert text.startswith("---\nlibrary_name: transformers\n---\n")
    for said in (
        "llm-1",
        "`t0003`, `t0001`",
        "`eval_loss`: 1.25 on the test split",
        "- data: fingerprint `abc`",
        "`lr`: `0.001`",
        "`[1, 2]`",
    ):
        assert said in text
    assert hashlib.sha256(b"weights").hexdigest() in text
    assert sorted(verify(target).files) == ["README.md", "config.json", "model.safetensors"]
    assert [p.name for p in target.parent.iterdir()] == ["hf"]


def test_a_format_whose_packages_are_missing_says_what_to_install() -> None:
    there = replace(FORMATS["onnx"], needs=("json",))
    there.check_installed("onnx")
    missing = replace(FORMATS["onnx"], needs=("json", "no_such_package"))
    with pytest.raises(UserError) as told:
        missing.check_installed("onnx")
    assert str(told.value) == (
        "--to onnx: needs no_such_package; install with: pip install 'tune-platform[export]'"
    )


def test_a_target_is_replaced_only_by_force_and_only_an_export(
    source: Path, tmp_path: Path
) -> None:
    target = export_hf(source, tmp_path / "hf", write, CARD)
    with pytest.raises(UserError, match="--force"):
        export_hf(source, target, write, CARD)
    export_hf(source, target, lambda f: write(f), CARD, force=True)
    own = tmp_path / "own"
    own.mkdir()
    (own / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="no earlier export"):
        export_hf(source, own, write, CARD, force=True)
    assert (own / "thesis.tex").exists()


def test_a_writer_that_fails_leaves_nothing(source: Path, tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        write(folder)
        raise NotImplementedError("no transformers form")

    with pytest.raises(NotImplementedError):
        export_hf(source, tmp_path / "out" / "hf", fail, CARD)
    assert list((tmp_path / "out").iterdir()) == []


def test_damaged_weights_are_not_exported(source: Path, tmp_path: Path) -> None:
    (source / "model.safetensors").write_text("WEIGHTS")
    with pytest.raises(UserError, match="another SHA-256"):
        export_hf(source, tmp_path / "hf", write, CARD)
