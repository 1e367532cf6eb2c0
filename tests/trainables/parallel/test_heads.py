"""Ranks that share layers learn the same where heads are normalised and grouped."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.trainables.local import ROOT


@pytest.mark.slow
def test_shared_layers_learn_what_a_whole_model_learns(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.trainables.parallel.heads"]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    done = [rank.communicate(timeout=200) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], [err[-3000:] for _, err in done]
    pairs = json.loads(done[0][0])
    assert len(pairs) == 6
    for whole, shared in pairs:
        np.testing.assert_allclose(np.array(shared)[:, 0], np.array(whole)[:, 0], atol=5e-6, rtol=0)
        np.testing.assert_allclose(shared, whole, rtol=2e-5)
