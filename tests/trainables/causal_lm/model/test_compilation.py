"""Ranks that share weights compile their blocks, and have the faster loss that GPUs take."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters
from transformers import AutoModelForCausalLM

from results.records.trial import read_reports
from results.trial_paths import TrialPaths
from search_spaces.layout import Layout
from tests.trainables.causal_lm.fast_ranks import CONFIG
from tests.trainables.local import run_trial
from tests.trainables.parallel.test_layouts import spawn
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.model.fast_path import speed_up
from trainables.causal_lm.model.model import architecture
from trainables.causal_lm.model.objective import NextTokenLoss
from trainables.runtime.seeding import restored_global_state

PROGRAM = "tests.trainables.causal_lm.fast_ranks"


def test_faster_loss_and_compiled_blocks_give_the_gradients_of_one_process(tmp_path: Path) -> None:
    spawn(tmp_path, 2, ["gradients"], PROGRAM)


@pytest.mark.layouts
def test_a_compiled_trial_on_two_ranks_learns_what_one_process_learns(tmp_path: Path) -> None:
    spawn(tmp_path, 2, ["trial"], PROGRAM)
    one = {**CONFIG, "num_layers": 2}
    expected = run_trial(tmp_path / "one", "causal_lm", one, cache=tmp_path / "cache").reports
    found = read_reports(TrialPaths(tmp_path / "trial"))
    for name in ("train_loss", "eval_loss", "grad_norm"):
        losses = [report.metrics[name] for report in found]
        assert losses == pytest.approx([r.metrics[name] for r in expected], rel=5e-6)


@pytest.mark.layouts
@pytest.mark.filterwarnings("ignore")  # of torch's compiler
def test_all_blocks_of_a_fast_model_share_one_compilation() -> None:
    config = CausalLMConfig.model_validate({**CONFIG, "num_layers": 10})
    tokens = torch.randint(0, 300, (2, 33), generator=torch.Generator().manual_seed(0))
    found: list[tuple[torch.Tensor, list[torch.Tensor | None]]] = []
    for compiled in (False, True):
        with restored_global_state():
            torch.manual_seed(0)
            shape = architecture(config, {"vocab_size": 300, "end": 0})
            model = AutoModelForCausalLM.from_config(shape)
            speed_up(model)
            loss = NextTokenLoss(model, config)
            counters.clear()
            if compiled:
                loss.compile(dynamic=False)
            value = loss(tokens)
            value.backward()
            found.append((value, [p.grad for p in model.parameters()]))
    assert counters["stats"]["unique_graphs"] == 2  # a block, and the loss
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize(
    ("layout", "fits"),
    [
        (Layout(dp_shard=2), True),
        (Layout(dp_replicate=2, dp_shard=2), True),
        (Layout(tp=2), False),
        (Layout(cp=2), False),
        (Layout(pp=2), False),
    ],
)
def test_compile_works_where_ranks_compute_whole_layers(layout: Layout, fits: bool) -> None:
    config = CausalLMConfig.model_validate({**CONFIG, "compile": True})
    assert (config.validate_layout(layout) is None) == fits
    mixture = CausalLMConfig.model_validate({**CONFIG, "compile": True, "experts": {"count": 4}})
    assert mixture.validate_layout(layout) is not None
