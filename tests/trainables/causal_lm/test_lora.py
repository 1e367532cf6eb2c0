"""Adapters: trained, resumed, read by plain `peft`, merged for averages and exports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import AutoPeftModelForCausalLM
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from results.averaging import make_method
from results.paths import SweepPaths
from results.records.spec_file import read_spec
from results.records.trial import read_trial
from search_spaces.errors import UserError
from search_spaces.layout import Layout
from tests.cli.trained import trained
from tests.trainables.causal_lm.pretrained import write_base
from tests.trainables.local import RecordingChannel, newest_checkpoint, run_trial
from trainables.base import Split
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.lora import (
    LoRAConfig,
    add_adapter,
    copy_adapter,
    without_adapter,
    write_adapter,
)
from trainables.causal_lm.model.model import load_model, new_model
from trainables.causal_lm.trainable import CausalLM
from trainables.data.text.dataset import prepare
from trainables.job import Answer
from trainables.training.checkpoint import read_lineage, weights_digest
from trainables.training.task import open_task
from tuning.evaluation.average import AverageOptions, ModelChoice, average_models

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated")
"""`PeftModel` asks for it; the adapters that are trained here are none."""
LORA = {"rank": 2, "alpha": 8, "dropout": 0.2}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rslora": {"use_rslora": True},
    "dora": {"use_dora": True, "modules_to_save": ["model.norm"]},
    "modules": {"modules_to_save": ["mlp"]},
}


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> dict[str, Any]:
    """The configuration of an adapter."""
    return {**write_base(tmp_path_factory.mktemp("m") / "base", cache), "lora": LORA}


def check_without_adapter(
    config: CausalLMConfig, cache: Path, folder: Path, tokens: torch.Tensor, base: torch.Tensor
) -> None:
    """A model whose adapter is turned off is its base, and then has it again."""
    assert config.lora is not None
    if config.lora.is_separable:
        model = load_model(config, prepare(config, cache), folder, config.lora).eval()
        adapted = model(tokens).logits
        with without_adapter(model):
            torch.testing.assert_close(model(tokens).logits, base)
        assert torch.equal(model(tokens).logits, adapted)


@pytest.mark.parametrize("variant", VARIANTS)
def test_adapter_resumes_bit_for_bit_and_is_read_by_peft(
    tmp_path: Path, cache: Path, adapted: dict[str, Any], variant: str
) -> None:
    adapted = {**adapted, "lora": {**LORA, **VARIANTS[variant]}}
    whole = run_trial(tmp_path / "whole", "causal_lm", adapted, cache=cache)
    stopped = RecordingChannel({2: Answer.STOP})
    run_trial(tmp_path / "cut", "causal_lm", adapted, channel=stopped, cache=cache)
    rest = run_trial(tmp_path / "cut", "causal_lm", adapted, attempt=2, cache=cache)
    assert {**stopped.curve, **rest.curve} == whole.curve
    losses = [metrics["eval_loss"] for metrics in whole.curve.values()]
    assert losses[-1] < losses[0]
    files = [newest_checkpoint(tmp_path / n).manifest.files for n in ("whole", "cut")]
    assert files[0]["adapter_model.safetensors"] == files[1]["adapter_model.safetensors"]
    assert "model.safetensors" not in files[0]

    config, saved = CausalLMConfig.model_validate(adapted), newest_checkpoint(tmp_path / "cut")
    scores = CausalLM().evaluate(config, saved.folder, Split.SELECTION, cache)
    assert scores["eval_loss"] == losses[-1]
    start = new_model(config, prepare(config, cache))
    assert read_lineage(saved.folder) == weights_digest(start)
    CausalLM().export_hf(config, saved.folder, tmp_path / "hf", cache)
    tokens = torch.arange(20, 36)[None]
    auto: Any = AutoModelForCausalLM
    with torch.no_grad():
        expected = AutoPeftModelForCausalLM.from_pretrained(saved.folder)(tokens).logits
        merged = auto.from_pretrained(tmp_path / "hf")(tokens).logits
        assert not torch.allclose(start(tokens).logits, expected)
        check_without_adapter(config, cache, saved.folder, tokens, start(tokens).logits)
    torch.testing.assert_close(merged, expected)
    if variant != "plain":
        plain = run_trial(tmp_path / "plain", "causal_lm", {**adapted, "lora": LORA}, cache=cache)
        assert plain.curve != whole.curve


def test_adapter_of_another_base_or_rank_is_refused(
    tmp_path: Path, cache: Path, adapted: dict[str, Any]
) -> None:
    run_trial(tmp_path / "t", "causal_lm", adapted, cache=cache)
    other = {**write_base(tmp_path / "other", cache, seed=1), "lora": LORA}
    with pytest.raises(UserError, match="other: not the base of the adapter in"):
        CausalLM().evaluate(
            CausalLMConfig.model_validate(other),
            newest_checkpoint(tmp_path / "t").folder,
            Split.TEST,
            cache,
        )
    wider = {**adapted, "lora": {**LORA, "rank": 3}}
    with pytest.raises(UserError, match="its adapter is of another model, rank or targets"):
        run_trial(tmp_path / "t", "causal_lm", wider, attempt=2, cache=cache)


@pytest.mark.parametrize("use_dora", [False, True])
def test_adapters_of_different_ranks_average_as_whole_models(
    tmp_path: Path, adapted: dict[str, Any], use_dora: bool
) -> None:
    sweep: dict[str, Any] = {
        "name": "adapters",
        "trainable": "causal_lm",
        "metric": "eval_loss",
        "mode": "min",
        "space": {"lora": {"rank": {"grid_search": [2, 4]}}},
        "fixed": {**adapted, "lora": {"alpha": 8, "use_dora": use_dora}},
        "scheduler": {"name": "none", "max_t": 6},
        "search": {"name": "random"},
        "tracking": {"name": "none"},
    }
    paths = trained(sweep, tmp_path)
    ranks = [read_trial(paths.trial(t)).config["lora"] for t in paths.trial_ids()]
    assert sorted(r["rank"] for r in ranks) == [2, 4]
    soup, folder = _average(paths)
    mean = load_file(folder / "model.safetensors")
    auto: Any = AutoPeftModelForCausalLM
    models = [
        auto.from_pretrained(newest_checkpoint(paths.trial(t).root).folder)
        .merge_and_unload()
        .state_dict()
        for t in paths.trial_ids()
    ]
    torch.testing.assert_close(mean, {k: (models[0][k] + models[1][k]) / 2 for k in mean})
    assert not list(folder.glob("adapter*"))
    config = CausalLMConfig.model_validate(read_trial(paths.trial(soup.trial_id)).config)
    score = CausalLM().evaluate(config, folder, Split.TEST, paths.storage.cache)
    assert score["eval_loss"] == pytest.approx(soup.scores["uniform"].mean, rel=1e-5)
    assert json.loads((folder / "lineage.json").read_text())
    assert [p.name for p in paths.root.glob(".average*")] == []


def _average(paths: SweepPaths) -> Any:
    method = make_method("uniform")
    request = AverageOptions(method)
    return average_models(paths, read_spec(paths), ModelChoice(top=2), request)


def test_adapter_changes_nothing_before_it_is_trained(cache: Path, adapted: dict[str, Any]) -> None:
    config = CausalLMConfig.model_validate(adapted)
    model, tokens = new_model(config, prepare(config, cache)), torch.arange(20, 36)[None]
    with torch.no_grad():
        before = model(tokens).logits
        add_adapter(model, LoRAConfig(targets=["q_proj"]), seed=0)
        assert torch.equal(model(tokens).logits, before)
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    assert len(names) == 2
    assert all("q_proj" in name for name in names)
    with pytest.raises(UserError, match=r"no layer 'v_prj' .* \(did you mean 'v_proj'\?\)"):
        add_adapter(new_model(config, prepare(config, cache)), LoRAConfig(targets=["v_prj"]), 0)
    with pytest.raises(ValueError, match="set model_name_or_path"):
        CausalLMConfig.model_validate({"lora": {}})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lm_head", "'lm_head' shares a matrix"),
        ("nrm", r"no module 'nrm' \(did you mean 'norm'\?\)"),
    ],
)
def test_modules_that_cannot_be_saved_are_refused(
    cache: Path, adapted: dict[str, Any], name: str, message: str
) -> None:
    config = CausalLMConfig.model_validate(adapted)
    with pytest.raises(UserError, match=message):
        add_adapter(
            new_model(config, prepare(config, cache)), LoRAConfig(modules_to_save=[name]), 0
        )


def test_variants_that_are_not_compiled_or_shared_are_refused(adapted: dict[str, Any]) -> None:
    lora = {**LORA, "use_dora": True}
    with pytest.raises(ValueError, match=r"torch.compile does not take lora.use_dora"):
        CausalLMConfig.model_validate({**adapted, "lora": lora, "compile": True})
    config = CausalLMConfig.model_validate({**adapted, "lora": lora})
    assert config.validate_layout(Layout(dp_shard=2)) == (
        "lora",
        "with use_dora, modules_to_save or quantize does not work with layout dp_shard 2",
    )


def test_quantized_base(tmp_path: Path, cache: Path, adapted: dict[str, Any]) -> None:
    pytest.importorskip("bitsandbytes")
    with pytest.raises(ValueError, match="use_dora: not with quantize"):
        LoRAConfig(quantize="4bit", use_dora=True)
    config = CausalLMConfig.model_validate({**adapted, "lora": {**LORA, "quantize": "4bit"}})
    [(path, problem)] = config.missing_files()
    assert path == ("lora", "quantize")
    assert "CUDA" in problem
    with pytest.raises(UserError, match="CUDA"):
        run_trial(tmp_path / "t", "causal_lm", config.model_dump(mode="json"), cache=cache)

    task, tokens = open_task(config, cache), torch.arange(20, 36)[None]
    model, lineage = task.start()
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(0, 0.1, generator=torch.Generator().manual_seed(len(name)))
    assert config.lora is not None
    write_adapter(tmp_path, config.lora, str(config.model_name_or_path), copy_adapter(model))
    (tmp_path / "lineage.json").write_text(json.dumps({"init": lineage}))
    task.export_hf(tmp_path, tmp_path / "hf")
    auto: Any = AutoModelForCausalLM
    with torch.no_grad():
        expected = model.eval()(tokens).logits
        assert torch.equal(task.load_model(tmp_path).eval()(tokens).logits, expected)
        merged = auto.from_pretrained(tmp_path / "hf")(tokens).logits
        assert not torch.allclose(new_model(config, task.dataset)(tokens).logits, merged)
    torch.testing.assert_close(merged, expected, rtol=1e-4, atol=1e-5)
