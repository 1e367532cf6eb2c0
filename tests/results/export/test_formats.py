"""Every export format, verified by an independent runtime in a fresh process."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from results.checkpoints.commit import newest_intact, verify
from results.export.exportable import ModelSource
from results.export.folder import ModelCard, export_model
from results.export.format import FORMATS, make_format, quantized
from results.export.formats.gguf import Gguf
from results.export.formats.hf import HuggingFace
from results.export.verify import REPORT, verify_export
from results.trial_paths import TrialPaths
from search_spaces.errors import UserError
from tests.trainables.examples import EXAMPLES
from tests.trainables.local import run_trial
from trainables.registry import resolve

pytestmark = pytest.mark.slow

CARD = ModelCard("sweep", "loss", 1.0, ("t0000",))


@dataclass(frozen=True)
class FormatExample:
    """Trainables whose models a format takes, and whether it contains the tokenizer."""

    trainables: tuple[str, ...]
    has_tokenizer: bool = False


ALL = ("causal_lm", "digits", "image_classifier")
FORMAT_EXAMPLES = {
    "hf": FormatExample(ALL, has_tokenizer=True),
    "onnx": FormatExample(ALL),
    "pt2": FormatExample(ALL),
    "gguf": FormatExample(("causal_lm",), has_tokenizer=True),
    "gguf-q8_0": FormatExample(("causal_lm",), has_tokenizer=True),
    "gguf-q4_k_m": FormatExample(("causal_lm",), has_tokenizer=True),
    "onnx-int8": FormatExample(ALL),
    "booster": FormatExample(()),  # tests/trainables/tabular
    "safetensors": FormatExample(()),  # runs nowhere; see below
}
CONFIGS = {name: EXAMPLES[name].config for name in ALL}
CONFIGS["causal_lm"] = {**CONFIGS["causal_lm"], "hidden_size": 32}  # blocks of q8_0


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("trained")
    for name in ALL:
        run_trial(root / name, name, CONFIGS[name], checkpoint_every=1, cache=root / "cache")
    return {n: newest_intact(TrialPaths(root / n)).folder for n in ALL}


def model_of(name: str, weights: Path) -> ModelSource:
    trainable = resolve(name)
    config = trainable.Config.model_validate(CONFIGS[name])
    cache = weights.parents[3] / "cache"
    return ModelSource(
        weights,
        lambda: trainable.exportable(config, weights, cache),
        lambda folder: trainable.export_hf(config, weights, folder, cache),
    )


def test_every_format_has_an_example() -> None:
    assert FORMAT_EXAMPLES.keys() == FORMATS.keys()


@pytest.mark.parametrize(
    ("name", "form"),
    [(name, form) for form, example in FORMAT_EXAMPLES.items() for name in example.trainables],
)
class TestConformance:
    """What every format keeps: the copy's outputs are the original's, at every input shape."""

    def test_copy_gives_the_outputs_of_the_original(
        self, trained: dict[str, Path], tmp_path: Path, name: str, form: str
    ) -> None:
        source = trained[name]
        target = tmp_path / "out"
        verifications = export_model(source, target, form, model_of(name, source), CARD)
        report = json.loads((target / REPORT).read_text())
        assert report["passed"]
        assert [judge["runtime"] for judge in report["judges"]] == [
            one.runtime for one in verifications
        ]
        for one, judge in zip(verifications, report["judges"], strict=True):
            assert one.passed
            assert len({tuple(case["shape"]) for case in judge["cases"]}) == 3
            has_tokenizer = name == "causal_lm" and FORMAT_EXAMPLES[form].has_tokenizer
            # llama.cpp alone says what tokens a GGUF has
            compared = has_tokenizer and not (
                form.startswith("gguf") and judge is report["judges"][0]
            )
            assert one.tokens_equal is (True if compared else None)
        assert {"README.md", REPORT} < set(verify(target).files)
        (weights,) = (p for p in target.iterdir() if p.suffix in make_format(form).weights)
        card = (target / "README.md").read_text()
        assert f"- `{weights.name}`: `" in card
        is_lossy = make_format(form).runtimes[0].most_lost is not None
        assert card.count("nats to the loss") == is_lossy * len(verifications)


@pytest.mark.parametrize(("form", "part"), [("gguf", 0.45), ("onnx", 0.8)])
def test_quantized_weights_are_smaller_and_differ_a_little(
    trained: dict[str, Path], tmp_path: Path, form: str, part: float
) -> None:
    """And less than the tolerance: a wrong weight is noticed."""
    source = trained["causal_lm"]
    model, sizes = model_of("causal_lm", source), []
    for name in (form, quantized(form, {"gguf": "q8_0", "onnx": "int8"}[form])):
        checks = export_model(source, tmp_path / name, name, model, CARD)
        (file,) = (tmp_path / name).glob("model.*")
        sizes.append(file.stat().st_size)
    assert sizes[1] < part * sizes[0]
    for check in checks:
        assert all(0 < (case.divergence or 0) < 1e-3 for case in check.cases)
        assert all(case.error > 1e-5 for case in check.cases)
    weight = next(model.exportable.module.parameters())
    weight.data[:, 5] += 1
    runtime = make_format(name).runtimes[-1]
    assert not verify_export(tmp_path / name, runtime, model.exportable).passed


READER, LLAMA_CPP = Gguf.runtimes


class WithoutLlamaCpp(Gguf):
    """GGUF on a machine that has no llama.cpp."""

    runtimes = (READER, replace(LLAMA_CPP, needs="no_such_module"))


def test_gguf_is_verified_by_llama_cpp_where_it_is_installed(
    trained: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By transformers' reader in any case; and llama.cpp notices a wrong weight."""
    source = trained["causal_lm"]
    model = model_of("causal_lm", source)
    both = export_model(source, tmp_path / "both", "gguf", model, CARD)
    assert [v.runtime.split()[0] for v in both] == ["transformers", "llama.cpp"]
    monkeypatch.setitem(FORMATS, "gguf", f"{__name__}:WithoutLlamaCpp")
    assert len(export_model(source, tmp_path / "one", "gguf", model, CARD)) == 1

    other = model_of("causal_lm", source)
    weight = next(other.exportable.module.parameters())
    weight.data[:, 5] += 1
    found = verify_export(tmp_path / "one", LLAMA_CPP, other.exportable)
    assert found.tokens_equal
    assert not found.passed


class Damaging(HuggingFace):
    """A writer that changes one weight."""

    def write(self, model: ModelSource, folder: Path) -> None:
        super().write(model, folder)
        file = folder / "model.safetensors"
        tensors = load_file(file)
        tensors["model.embed_tokens.weight"][5] += 1
        save_file(tensors, file, {"format": "pt"})


def test_export_refuses_a_copy_that_differs(
    trained: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FORMATS, "hf", f"{__name__}:Damaging")
    source = trained["causal_lm"]
    with pytest.raises(UserError, match=r"the copy differs: transformers .*largest error"):
        export_model(source, tmp_path / "out", "hf", model_of("causal_lm", source), CARD)
    assert list(tmp_path.iterdir()) == []
