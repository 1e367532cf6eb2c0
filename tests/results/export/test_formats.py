"""Every export format, verified by an independent runtime in a fresh process."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from results.checkpoints.commit import newest_intact, verify
from results.export.exportable import Exportable, ModelSource
from results.export.folder import ModelCard, export_model
from results.export.format import FORMATS, make_format, quantized
from results.export.formats.gguf import Gguf
from results.export.formats.hf import HuggingFace
from results.export.verify import REPORT, Verification, verify_export
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


Exported = Callable[[str, str], tuple[Path, list[Verification]]]


@pytest.fixture(scope="module")
def exported(trained: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """The folder of a trainable's model in a format, and what its runtimes found; once each."""

    @cache
    def export(name: str, form: str) -> tuple[Path, list[Verification]]:
        target, source = tmp_path_factory.mktemp(name) / "out", trained[name]
        return target, export_model(source, target, form, model_of(name, source), CARD)

    return export


def with_a_wrong_weight(source: Path) -> Exportable:
    model = model_of("causal_lm", source).exportable
    next(model.module.parameters()).data[:, 5] += 1
    return model


def test_every_format_has_an_example() -> None:
    assert FORMAT_EXAMPLES.keys() == FORMATS.keys()


@pytest.mark.parametrize(
    ("name", "form"),
    [(name, form) for form, example in FORMAT_EXAMPLES.items() for name in example.trainables],
)
class TestConformance:
    """What every format keeps: the copy's outputs are the original's, at every input shape."""

    def test_copy_gives_the_outputs_of_the_original(
        self, exported: Exported, name: str, form: str
    ) -> None:
        target, verifications = exported(name, form)
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
    trained: dict[str, Path], exported: Exported, form: str, part: float
) -> None:
    """And less than the tolerance: a wrong weight is noticed."""
    name = quantized(form, {"gguf": "q8_0", "onnx": "int8"}[form])
    folders = [exported("causal_lm", each)[0] for each in (form, name)]
    whole, small = (next(f.glob("model.*")).stat().st_size for f in folders)
    assert small < part * whole
    for check in exported("causal_lm", name)[1]:
        assert all(0 < (case.divergence or 0) < 1e-3 for case in check.cases)
        assert all(case.error > 1e-5 for case in check.cases)
    other = with_a_wrong_weight(trained["causal_lm"])
    assert not verify_export(folders[1], make_format(name).runtimes[-1], other).passed


READER, LLAMA_CPP = Gguf.runtimes


class WithoutLlamaCpp(Gguf):
    """GGUF on a machine that has no llama.cpp."""

    runtimes = (READER, replace(LLAMA_CPP, needs="no_such_module"))


def test_gguf_is_verified_by_llama_cpp_where_it_is_installed(
    trained: dict[str, Path],
    exported: Exported,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By transformers' reader in any case; and llama.cpp notices a wrong weight."""
    folder, both = exported("causal_lm", "gguf")
    assert [v.runtime.split()[0] for v in both] == ["transformers", "llama.cpp"]
    monkeypatch.setitem(FORMATS, "gguf", f"{__name__}:WithoutLlamaCpp")
    source = trained["causal_lm"]
    one = export_model(source, tmp_path / "one", "gguf", model_of("causal_lm", source), CARD)
    assert len(one) == 1
    found = verify_export(folder, LLAMA_CPP, with_a_wrong_weight(source))
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
