"""A setting with a fraction is no constant of compiled code: a search compiles once."""

from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from transformers import AutoModelForCausalLM

from tests.trainables.examples import EXAMPLES
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.lora import add_adapter
from trainables.causal_lm.model.compilation import TrainedLoss
from trainables.causal_lm.model.model import architecture
from trainables.causal_lm.model.objective import NextTokenLoss
from trainables.distill.config import DistillConfig
from trainables.distill.task import DistillationLoss
from trainables.dpo.config import DPOConfig
from trainables.dpo.loss import PreferenceLoss
from trainables.grpo.config import GRPOConfig
from trainables.grpo.loss import PolicyLoss
from trainables.runtime.seeding import restored_global_state

SHAPE = {"hidden_size": 16, "num_layers": 1, "vocab_size": 300}
META = {"vocab_size": 300, "end": 0}
TOKENS = torch.randint(0, 300, (2, 9), generator=torch.Generator().manual_seed(0))
PAIR, EACH, TOP = torch.ones(2), torch.ones(2, 8), torch.ones(2, 8, 4)
KTO = {"loss": "kto", "desirable_weight": 1.2}
PLACES, FOUR = torch.tensor([3, 9, 4, 2]), torch.ones(4)
LOSSES: list[tuple[str, Any, Any, dict[str, Any], tuple[Any, ...]]] = [
    ("causal_lm", CausalLMConfig, NextTokenLoss, {"experts": None}, ()),
    ("distill", DistillConfig, DistillationLoss, {"experts": None}, (None, TOP.long(), -TOP)),
    ("dpo", DPOConfig, PreferenceLoss, {"label_smoothing": 0.1}, (EACH.bool(), PAIR)),
    ("dpo", DPOConfig, PreferenceLoss, {"loss": "ipo"}, (EACH.bool(), PAIR)),
    ("dpo", DPOConfig, PreferenceLoss, {"loss": "orpo"}, (EACH.bool(), None, 0.1 * EACH)),
    ("dpo", DPOConfig, PreferenceLoss, {"loss": "simpo", "gamma": 0.2}, (EACH.bool(),)),
    ("dpo", DPOConfig, PreferenceLoss, KTO, (EACH.bool(), PAIR, None, PAIR > 0, 0.1 * PAIR[0])),
    ("dpo", DPOConfig, PreferenceLoss, {"lora": {"rank": 2}}, (EACH.bool(), PAIR)),
    (
        "grpo",
        GRPOConfig,
        PolicyLoss,
        {"beta": 0.1},
        (None, PLACES, PLACES, FOUR.expand(3, 4), -FOUR),
    ),
]


def scaled(config: Any, factor: float) -> Any:
    """A configuration with every fraction another one, in its sections, too."""
    changed = {n: v * factor for n, v in config if isinstance(v, float)}
    inner = {n: scaled(v, factor) for n, v in config if hasattr(v, "model_copy")}
    return config.model_copy(update={**changed, **inner})


@pytest.mark.parametrize(("name", "kind", "loss", "changes", "inputs"), LOSSES)
def test_trials_that_differ_in_fractions_compile_once(
    name: str, kind: Any, loss: type[TrainedLoss[Any]], changes: dict[str, Any], inputs: Any
) -> None:
    config = kind.model_validate({**EXAMPLES[name].config, **changes})
    shape = architecture(CausalLMConfig.model_validate(SHAPE), META)
    counter = CompileCounter()
    values = []
    for factor in (1.0, 0.9, 0.8):
        with restored_global_state():
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(shape)
            trial = scaled(config, factor)
            if trial.lora is not None:
                add_adapter(model, trial.lora, 0)
            compiled = loss(model, trial)
            compiled.compile(backend=counter, dynamic=False)
            for _ in range(2):
                value = compiled(TOKENS, *inputs)
                value.backward()
            torch.testing.assert_close(value, loss(model, trial)(TOKENS, *inputs))
            values.append(value.item())
    assert counter.frame_count == 1
    assert len(set(values)) == (1 if name == "causal_lm" else 3)


def test_trials_of_another_shape_do_not_share_the_limit_of_compilations() -> None:
    counter = CompileCounter()
    for width in (16, 32, 48):
        with restored_global_state():
            shape = {**SHAPE, "hidden_size": width}
            config = CausalLMConfig.model_validate(shape)
            compiled = NextTokenLoss(
                AutoModelForCausalLM.from_config(architecture(config, META)), config
            )
            compiled.compile(backend=counter, dynamic=False)
            compiled(TOKENS)
    assert counter.frame_count == 3
