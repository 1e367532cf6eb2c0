"""Every format, judged by an independent runtime in a fresh process, on models trained here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from results.checkpoints.commit import newest_intact, verify
from results.export.folder import Card, export
from results.export.formats import FORMATS, Model
from results.export.verify import REPORT, verify_export
from results.paths import TrialPaths
from search_spaces.errors import UserError
from tests.trainables.examples import EXAMPLES
from tests.trainables.local import run_trial
from trainables.registry import resolve

pytestmark = pytest.mark.slow

CARD = Card("sweep", "loss", 1.0, ("t0000",))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("trained")
    for name in ("causal_lm", "digits"):
        config = EXAMPLES[name].config
        run_trial(root / name, name, config, checkpoint_every=1, cache=root / "cache")
    return {n: newest_intact(TrialPaths(root / n)).folder for n in ("causal_lm", "digits")}


def model_of(name: str, weights: Path) -> Model:
    trainable = resolve(name)
    config = trainable.Config.model_validate(EXAMPLES[name].config)
    cache = weights.parents[3] / "cache"
    return Model(
        lambda: trainable.exportable(config, weights, cache),
        lambda folder: trainable.export_hf(config, weights, folder, cache),
    )


CAN = [("causal_lm", form) for form in FORMATS] + [("digits", f) for f in ("hf", "onnx", "pt2")]


@pytest.mark.parametrize(("name", "form"), CAN)
class TestConformance:
    """What every format keeps: the copy gives what the original gives, at every shape."""

    def test_the_copy_is_the_original(
        self, trained: dict[str, Path], tmp_path: Path, name: str, form: str
    ) -> None:
        source = trained[name]
        target = tmp_path / "out"
        verdicts = export(source, target, form, model_of(name, source), CARD)
        report = json.loads((target / REPORT).read_text())
        assert report["passed"]
        assert [judge["runtime"] for judge in report["judges"]] == [v.runtime for v in verdicts]
        for verdict, judge in zip(verdicts, report["judges"], strict=True):
            assert verdict.passed
            assert len({tuple(case["shape"]) for case in judge["cases"]}) == 3
            reads_text = name == "causal_lm" and form in ("hf", "gguf")
            assert verdict.tokens_equal is (True if reads_text else None)
        assert {"README.md", REPORT} < set(verify(target).files)


def test_a_gguf_file_is_judged_by_llama_cpp_where_it_is_installed(
    trained: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By transformers' reader in any case; and both notice a wrong weight."""
    source = trained["causal_lm"]
    model = model_of("causal_lm", source)
    both = export(source, tmp_path / "both", "gguf", model, CARD)
    assert [v.runtime.split()[0] for v in both] == ["transformers", "llama.cpp"]
    reader, llama_cpp = FORMATS["gguf"].runtimes
    absent = replace(FORMATS["gguf"], runtimes=(reader, replace(llama_cpp, needs="no_such_thing")))
    monkeypatch.setitem(FORMATS, "gguf", absent)
    assert len(export(source, tmp_path / "one", "gguf", model, CARD)) == 1

    other = model_of("causal_lm", source)
    weight = next(other.exportable.module.parameters())
    weight.data[:, 5] += 1
    found = verify_export(tmp_path / "one", llama_cpp, other.exportable)
    assert found.tokens_equal
    assert not found.passed


def test_a_copy_that_differs_is_not_exported(
    trained: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer changes one weight; only the independent runtime can notice."""
    sound = FORMATS["hf"]

    def damaged(model: Model, folder: Path) -> None:
        sound.write(model, folder)
        file = folder / "model.safetensors"
        tensors = load_file(file)
        tensors["model.embed_tokens.weight"][5] += 1
        save_file(tensors, file, {"format": "pt"})

    monkeypatch.setitem(FORMATS, "hf", replace(sound, write=damaged))
    source = trained["causal_lm"]
    with pytest.raises(UserError, match=r"the copy differs: transformers .*largest error"):
        export(source, tmp_path / "out", "hf", model_of("causal_lm", source), CARD)
    assert list(tmp_path.iterdir()) == []
