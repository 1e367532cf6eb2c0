"""Every format, judged by an independent runtime in a fresh process, on models trained here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from results.checkpoint import newest_whole, verify
from results.export.folder import Card, export
from results.export.formats import FORMATS, Format, Model
from results.export.verify import REPORT
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
    return {n: newest_whole(TrialPaths(root / n)).folder for n in ("causal_lm", "digits")}


def model_of(name: str, weights: Path) -> Model:
    trainable = resolve(name)
    config = trainable.Config.model_validate(EXAMPLES[name].config)
    cache = weights.parents[2] / "cache"
    return Model(
        lambda: trainable.exportable(config, weights, cache),
        lambda folder: trainable.export_hf(config, weights, folder, cache),
    )


CAN = [("causal_lm", form) for form in FORMATS] + [("digits", "onnx"), ("digits", "pt2")]


@pytest.mark.parametrize(("name", "form"), CAN)
class TestConformance:
    """What every format keeps: the copy gives what the original gives, at every shape."""

    def test_the_copy_is_the_original(
        self, trained: dict[str, Path], tmp_path: Path, name: str, form: str
    ) -> None:
        source = trained[name]
        target = tmp_path / "out"
        verdict = export(source, target, form, model_of(name, source), CARD)
        assert verdict.passed
        report = json.loads((target / REPORT).read_text())
        assert report["passed"]
        assert len({tuple(case["shape"]) for case in report["cases"]}) == 3
        assert verdict.tokens_equal is (True if form in ("hf", "gguf") else None)
        assert {"README.md", REPORT} < set(verify(target).files)


def test_what_has_no_transformers_form_says_so(trained: dict[str, Path], tmp_path: Path) -> None:
    model = model_of("digits", trained["digits"])
    with pytest.raises(NotImplementedError, match="no transformers form"):
        export(trained["digits"], tmp_path / "out", "hf", model, CARD)
    assert list(tmp_path.iterdir()) == []


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

    form = Format(damaged, sound.runtime, sound.how)
    monkeypatch.setitem(FORMATS, "hf", form)
    source = trained["causal_lm"]
    with pytest.raises(UserError, match=r"the copy differs: transformers .*largest error"):
        export(source, tmp_path / "out", "hf", model_of("causal_lm", source), CARD)
    assert list(tmp_path.iterdir()) == []
