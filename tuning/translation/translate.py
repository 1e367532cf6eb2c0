"""Chooses how a file of another program is translated."""

from __future__ import annotations

import ast
from pathlib import Path

from search_spaces.errors import UserError
from tuning.translation import katib, optuna_objective, ray_script, wandb
from tuning.translation.draft import Draft
from tuning.translation.yaml_file import read_mapping

_KINDS = (
    "a sweep of W&B or an experiment of Katib (YAML), a script for Ray Tune (script.py), or an "
    "objective for Optuna (script.py:objective)"
)


def sweep_text(like: str) -> str:
    """A sweep file like a file of another program.

    Args:
        like: the path of a YAML file or of a script, or `script.py:objective`.

    Raises:
        UserError: there is no such file, or it is of none of these kinds.
    """
    file, _, function = like.rpartition(":")
    is_objective = file.endswith(".py")
    path = Path(file if is_objective else like)
    if not path.is_file():
        raise UserError(f"--like {like}: no such file; it takes {_KINDS}")
    draft = Draft(path)
    if is_objective and function:
        optuna_objective.translate(draft, like)
    elif path.suffix == ".py":
        ray_script.translate(draft, _tree(path))
    else:
        _translate_yaml(draft, path)
    return draft.text()


def _tree(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as e:
        raise UserError(f"{path}:{getattr(e, 'lineno', 1)}: not valid Python") from None


def _translate_yaml(draft: Draft, path: Path) -> None:
    data = read_mapping(path)
    if data.get("kind") == "Experiment" and "spec" in data:
        katib.translate(draft, data)
    elif "parameters" in data:
        wandb.translate(draft, data)
    else:
        raise UserError(f"--like {path}: neither parameters (W&B) nor kind: Experiment (Katib)")
