"""An export appears whole, with its model card, and replaces only an earlier export."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, NoReturn

import pytest

from results.checkpoints.commit import verify
from results.export.exportable import ModelSource
from results.export.folder import ModelCard, export_model
from results.export.format import make_format
from results.export.formats.torch_export import TorchExport
from results.trial_paths import TrialPaths
from search_spaces.errors import UserError
from tests.results.written import write_checkpoint

PARAMS, DATA = {"lr": 1e-3, "layers": [1, 2]}, ("data: fingerprint `abc`",)
TRIALS = ("t0003", "t0001")
CARD = ModelCard("llm-1", "eval_loss", 1.25, TRIALS, PARAMS, DATA, "on the test split")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_checkpoint(TrialPaths(tmp_path), 1, {"model.safetensors": "weights"})


def write(folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_text("weights")


def export_hf(
    source: Path, target: Path, writer: Callable[[Path], None], force: bool = False
) -> Path:
    def load() -> NoReturn:
        raise AssertionError("nothing to verify")

    export_model(
        source, target, "hf", ModelSource(source, load, writer), CARD, check=False, force=force
    )
    return target


def test_model_card_names_sweep_trials_and_weights(source: Path, tmp_path: Path) -> None:
    target = export_hf(source, tmp_path / "out" / "hf", write)
    text = (target / "README.md").read_text()
    assert text.startswith("---\nlibrary_name: transformers\n---\n")
    trials, value = "llm-1: t0003 + t0001", "`eval_loss`: 1.25 on the test split"
    digest = hashlib.sha256(b"weights").hexdigest()
    settings = ("- data: fingerprint `abc`", "`lr`: `0.001`", "`[1, 2]`")
    for expected in (trials, "`t0003`, `t0001`", value, *settings, digest):
        assert expected in text
    assert sorted(verify(target).files) == ["README.md", "config.json", "model.safetensors"]
    assert [p.name for p in target.parent.iterdir()] == ["hf"]


def test_export_replaces_only_an_earlier_export_and_only_with_force(
    source: Path, tmp_path: Path
) -> None:
    target = export_hf(source, tmp_path / "hf", write)
    with pytest.raises(UserError, match="--force"):
        export_hf(source, target, write)
    export_hf(source, target, write, force=True)
    own = tmp_path / "own"
    own.mkdir()
    (own / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="not an earlier export"):
        export_hf(source, own, write, force=True)
    assert (own / "thesis.tex").exists()


def test_failed_writer_leaves_no_files(source: Path, tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        write(folder)
        raise NotImplementedError("no transformers form")

    with pytest.raises(NotImplementedError):
        export_hf(source, tmp_path / "out" / "hf", fail)
    assert list((tmp_path / "out").iterdir()) == []


def test_export_refuses_damaged_weights(source: Path, tmp_path: Path) -> None:
    (source / "model.safetensors").write_text("WEIGHTS")
    with pytest.raises(UserError, match="another SHA-256"):
        export_hf(source, tmp_path / "hf", write)


@pytest.mark.parametrize(
    ("names", "line"),
    [
        (("adapter_model",), 'safetensors.torch.load_file("X/adapter_model.safetensors")'),
        (("model",), 'safetensors.torch.load_file("X/model.safetensors")'),
        (
            ("model-00001-of-00002", "model-00002-of-00002"),
            '[safetensors.torch.load_file(file) for file in Path("X").glob("*.safetensors")]',
        ),
    ],
)
def test_line_that_loads_tensors_names_the_files(
    tmp_path: Path, names: tuple[str, ...], line: str
) -> None:
    for name in names:
        (tmp_path / f"{name}.safetensors").touch()
    assert make_format("safetensors").load_line(tmp_path).format(folder="X") == line


class Needy(TorchExport):
    needs: ClassVar = ("json", "no_such_package")


def test_a_format_says_which_packages_to_install() -> None:
    make_format("pt2").check_installed("pt2")
    with pytest.raises(UserError, match=r"no_such_package; .* 'tune-platform\[export\]'"):
        Needy().check_installed("onnx")
