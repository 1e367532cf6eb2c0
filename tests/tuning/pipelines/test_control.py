"""`tune pause` and `tune stop` of a pipeline reach the session for which they were sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.records.pipeline import PipelinePaths
from results.sweep_folder.lock import acquire_lock
from search_spaces.errors import UserError
from tests.waiting import wait_for
from tuning.pipelines import control
from tuning.pipelines.control import PipelineCommands, command_pipeline, remove_commands


def test_command_that_comes_before_the_first_stage_is_carried_out(tmp_path: Path) -> None:
    paths = PipelinePaths(tmp_path / "words")
    paths.root.mkdir()
    with acquire_lock(paths.lock):
        remove_commands(paths)
        command_pipeline(paths, "stop")
        with PipelineCommands(paths) as commands:
            wait_for(lambda: commands.stopped)


def test_command_to_an_earlier_session_is_removed(tmp_path: Path) -> None:
    paths = PipelinePaths(tmp_path / "words")
    paths.root.mkdir()
    with acquire_lock(paths.lock):
        command_pipeline(paths, "stop")
    with acquire_lock(paths.lock):
        remove_commands(paths)
        commands = PipelineCommands(paths)
        command_pipeline(paths, "pause")  # which the thread reads after what was sent before
        with pytest.raises(KeyboardInterrupt), commands:
            wait_for(lambda: False)
        assert not commands.stopped


def test_stop_is_sent_again_after_an_error_of_the_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, sent = PipelinePaths(tmp_path / "words"), []
    (sweep := paths.sweep("sft")).root.mkdir(parents=True)

    def send(*what: object) -> None:
        sent.append(what)
        if len(sent) == 1:
            raise UserError("Stale file handle; mount it again")

    with acquire_lock(paths.lock), acquire_lock(sweep.lock):
        command_pipeline(paths, "stop")
        monkeypatch.setattr(control, "send", send)
        with PipelineCommands(paths) as commands, commands.running_stage("sft"):
            wait_for(lambda: len(sent) == 2)
    assert sent == [(sweep, "stop")] * 2
