"""Looks at the files of a reward model without loading it: no torch, as `tune plan` does it too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from results.trial_paths import TrialPaths
from trainables.config import path_in
from trainables.training.start_model import missing_of_model


def resolve_reward_model(given: Any, folder: Path) -> Any:
    """A reward with its model's absolute path, if it has one; of a trial its newest checkpoint.

    Args:
        given: value of a key of `rewards`.
        folder: of the sweep file.
    """
    path = given.get("path") if isinstance(given, dict) else given
    if not isinstance(path, str) or (found := path_in(folder, path)) is None:
        return given
    whole = str(TrialPaths(Path(found)).newest_checkpoint() or found)
    return {**given, "path": whole} if isinstance(given, dict) else whole


def reward_model_problem(path: str) -> str | None:
    """Why the model in a folder cannot give rewards, if so; None for a hub id."""
    folder = Path(path).expanduser()
    if not path.startswith(("/", ".", "~")) and path.count("/") < 2 and not folder.is_dir():
        return None
    if (missing := missing_of_model(folder)) is not None:
        return missing
    try:
        outputs = len(json.loads((folder / "config.json").read_text()).get("id2label", "ab"))
    except ValueError as e:
        return f"{folder}: config.json cannot be read ({e})"
    if outputs == 1:
        return None
    return (
        f"{folder}: a reward model has one output (num_labels: 1), this model {outputs};"
        " trainable: classifier with task: reward trains one"
    )
