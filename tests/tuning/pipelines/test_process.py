"""What a stage in a process of its own answers."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from results.records.pipeline import PipelinePaths
from search_spaces.pipeline.loading import LoadedPipeline
from tests.waiting import wait_for
from tuning.pipelines import process as stage_process
from tuning.pipelines.base import StageContext
from tuning.pipelines.process import StageProcess

WRITES = """
import os, sys
answer = os.fdopen(int(sys.argv[-1]), "w")
answer.write({!r})
"""


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ('{"stopped": "%s"}' % ("x" * 100_000), "x" * 100_000),
        ('{"stopped": "to', "the process of stage a ended with code 0"),
        ("", "the process of stage a ended with code 0"),
    ],
    ids=["long", "torn", "none"],
)
def test_answer_of_any_length_ends_the_stage(answer: str, said: str, tmp_path: Path) -> None:
    assert outcome(WRITES.format(answer), tmp_path) == said


def outcome(program: str, folder: Path) -> str:
    """Of a stage whose process runs a program."""
    context = StageContext(LoadedPipeline.__new__(LoadedPipeline), PipelinePaths(folder))
    process = StageProcess([sys.executable, "-c", program], context, "a", lambda: None)
    wait_for(lambda: not process.is_alive)
    return str(process.outcome())


def test_process_that_a_stage_leaves_behind_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_process, "_LINES_S", 0.1)
    left = "import subprocess\npid = subprocess.Popen(['sleep', '60']).pid"
    pid = outcome(left + WRITES.replace("{!r}", """f'{{"stopped": "{pid}"}}'"""), tmp_path)
    os.kill(int(pid), signal.SIGKILL)  # it still runs
