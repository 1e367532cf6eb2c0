from __future__ import annotations

from pathlib import Path

import torch

from tests.trainables.examples import EXAMPLES
from tests.trainables.local import RecordingChannel, newest_checkpoint, run_trial
from trainables.base import Split
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.model.packing import document_positions
from trainables.causal_lm.trainable import CausalLM
from trainables.job import Answer

END = 0


def test_positions_begin_again_at_each_document() -> None:
    tokens = torch.tensor([[5, 6, END, 7, 8, 1], [END, END, 5, 6, 7, 1], [1, 2, 3, 4, 5, END]])
    expected = [[0, 1, 0, 1, 2], [0, 0, 1, 2, 3], [0, 1, 2, 3, 4]]
    assert document_positions(tokens, END).tolist() == expected


def test_packed_documents_train_resume_and_evaluate(tmp_path: Path) -> None:
    config = {**EXAMPLES["causal_lm"].config, "packing": "documents"}
    whole = run_trial(tmp_path / "whole", "causal_lm", config)
    stopped = RecordingChannel({2: Answer.STOP})
    run_trial(tmp_path / "cut", "causal_lm", config, channel=stopped)
    rest = run_trial(tmp_path / "cut", "causal_lm", config, attempt=2)
    assert {**stopped.curve, **rest.curve} == whole.curve
    scores = CausalLM().evaluate(
        CausalLMConfig.model_validate(config),
        newest_checkpoint(tmp_path / "cut").folder,
        Split.SELECTION,
        tmp_path / "cache",
    )
    assert scores == {name: whole.curve[6][name] for name in scores}
