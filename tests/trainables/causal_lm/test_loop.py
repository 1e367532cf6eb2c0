import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from results.trial_paths import TrialPaths
from tests.trainables.examples import EXAMPLES
from tests.trainables.local import RecordingChannel, newest_checkpoint, run_trial
from tests.trainables.two_workers import leave_between_reports
from trainables.base import Split
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.evaluation import evaluated_rows
from trainables.causal_lm.trainable import CausalLM
from trainables.data.text.dataset import prepare
from trainables.job import Answer
from trainables.training.checkpoint import read_lineage

TINY = EXAMPLES["causal_lm"].config


def checkpoint(folder: Path) -> Path:
    return newest_checkpoint(folder).folder


def test_a_model_beats_the_frequencies_of_tokens(tmp_path: Path, cache: Path) -> None:
    """The best loss without a look at the tokens before: the entropy of the split's tokens."""
    config = {**TINY, "hidden_size": 32, "batch_size": 16, "max_steps": 80, "eval_every": 80}
    curve = run_trial(tmp_path / "t", "causal_lm", config, cache=cache).curve
    given = CausalLMConfig.model_validate(config)
    rows = evaluated_rows(prepare(given, cache), Split.SELECTION, given).tokens[:, 1:]
    shares = np.unique(rows, return_counts=True)[1] / rows.size
    assert curve[80]["eval_loss"] < -np.sum(shares * np.log(shares))


def test_sigterm_between_two_reports_loses_no_step(tmp_path: Path, cache: Path) -> None:
    whole = run_trial(tmp_path / "whole", "causal_lm", TINY, cache=cache)
    first, rest = leave_between_reports(tmp_path / "t", told=True, cache=cache)
    assert TrialPaths(tmp_path / "t").checkpoint_steps() == [5, 6]
    assert {**first.curve, **rest.curve} == whole.curve


def test_pretrained_model_is_trained_with_its_own_tokenizer(
    tmp_path: Path, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    from trainables.causal_lm.model.model import save_tokenizer

    scratch = CausalLMConfig.model_validate(TINY)
    save_tokenizer(scratch, prepare(scratch, cache), tmp_path / "base")
    GPT2LMHeadModel(
        GPT2Config(vocab_size=300, n_positions=32, n_embd=16, n_layer=1, n_head=2, eos_token_id=0)
    ).save_pretrained(tmp_path / "base")
    shape = ("hidden_size", "num_layers", "vocab_size")
    config: dict[str, Any] = {k: v for k, v in TINY.items() if k not in shape}
    config["model_name_or_path"] = str(tmp_path / "base")
    capfd.readouterr()
    # GPT-2 has dropout: a resumed run is the same only if the generators' state is restored
    whole = run_trial(tmp_path / "whole", "causal_lm", config, cache=cache)
    stopped = RecordingChannel({2: Answer.STOP})
    run_trial(tmp_path / "cut", "causal_lm", config, channel=stopped, cache=cache)
    rest = run_trial(tmp_path / "cut", "causal_lm", config, attempt=2, cache=cache)
    assert {**stopped.curve, **rest.curve} == whole.curve
    assert capfd.readouterr() == ("", "")
    saved = checkpoint(tmp_path / "cut")
    assert json.loads((saved / "config.json").read_text())["model_type"] == "gpt2"
    model = CausalLMConfig.model_validate(config)
    judged = CausalLM().evaluate(model, saved, Split.SELECTION, cache)
    assert judged["eval_loss"] == whole.reports[-1].metrics["eval_loss"]
    CausalLM().export_hf(model, saved, tmp_path / "hf", cache)
    assert (tmp_path / "hf" / "tokenizer.json").is_file()
    assert CausalLM().digest(model, tmp_path / "base", cache) == read_lineage(saved)
    described = tmp_path / "base" / "config.json"  # a model of its own since the training
    changed = {**json.loads(described.read_text()), "layer_norm_epsilon": 0.5}
    described.write_text(json.dumps(changed))
    assert CausalLM().evaluate(model, saved, Split.SELECTION, cache) == judged


def test_evaluate_refuses_weights_of_another_model(tmp_path: Path, cache: Path) -> None:
    from safetensors.numpy import load_file, save_file

    from search_spaces.errors import UserError

    run_trial(tmp_path / "t", "causal_lm", TINY, cache=cache)
    tensors = load_file(checkpoint(tmp_path / "t") / "model.safetensors")
    tensors.pop("model.norm.weight")
    (tmp_path / "bad").mkdir()
    save_file(tensors, tmp_path / "bad" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"another model .*model\.norm\.weight"):
        CausalLM().evaluate(
            CausalLMConfig.model_validate(TINY), tmp_path / "bad", Split.TEST, cache
        )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_trains_and_keeps_float32_weights(
    tmp_path: Path, cache: Path, dtype: str
) -> None:
    from safetensors.numpy import load_file

    full = run_trial(tmp_path / "full", "causal_lm", TINY, cache=cache)
    half = run_trial(tmp_path / "half", "causal_lm", {**TINY, "dtype": dtype}, cache=cache)
    losses = [c.reports[-1].metrics["eval_loss"] for c in (full, half)]
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
    tensors = load_file(checkpoint(tmp_path / "half") / "model.safetensors")
    assert {str(t.dtype) for t in tensors.values()} == {"float32"}


def test_learning_rate_warms_up_and_decays(tmp_path: Path, cache: Path) -> None:
    config = {**TINY, "max_steps": 10, "eval_every": 1, "warmup_fraction": 0.3}
    channel = run_trial(tmp_path / "t", "causal_lm", config, cache=cache)
    rates = [r.metrics["learning_rate"] for r in channel.reports]
    peak = rates.index(max(rates))
    assert 0 < peak < 4
    assert max(rates) == 0.01
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert rates[-1] == pytest.approx(0.001)


def test_smaller_micro_batches_give_the_same_losses(tmp_path: Path, cache: Path) -> None:
    whole = run_trial(tmp_path / "whole", "causal_lm", TINY, cache=cache)
    parts = run_trial(tmp_path / "parts", "causal_lm", {**TINY, "micro_batch_size": 3}, cache=cache)
    for name in ("eval_loss", "train_loss", "grad_norm"):
        expected = {step: metrics[name] for step, metrics in whole.curve.items()}
        got = {step: metrics[name] for step, metrics in parts.curve.items()}
        assert got == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    "option", [{"optimizer": "muon"}, {"optimizer": "lion"}, {"dtype": "float16"}]
)
def test_option_resumes_bit_for_bit(tmp_path: Path, cache: Path, option: dict[str, str]) -> None:
    config = {**TINY, **option, "learning_rate": 0.003}
    whole = run_trial(tmp_path / "whole", "causal_lm", config, cache=cache)
    stopped = RecordingChannel({2: Answer.STOP})
    run_trial(tmp_path / "cut", "causal_lm", config, channel=stopped, cache=cache)
    rest = run_trial(tmp_path / "cut", "causal_lm", config, attempt=2, cache=cache)
    assert {**stopped.curve, **rest.curve} == whole.curve
    losses = [metrics["eval_loss"] for metrics in whole.curve.values()]
    assert losses[-1] < losses[0]
    size = sum(f.size for f in newest_checkpoint(tmp_path / "whole").manifest.files.values())
    expected = CausalLMConfig.model_validate(config).checkpoint_bytes
    assert expected is not None
    assert expected < size < expected + 100_000  # tokenizer, generators
