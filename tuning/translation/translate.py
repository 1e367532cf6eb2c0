"""Chooses how a file of another program is translated."""

from __future__ import annotations

import ast
from pathlib import Path

from search_spaces.errors import UserError
from trainables.user_code import loader
from trainables.user_code.optuna.source import read_objective
from tuning.translation import katib, optuna_source, ray_script, wandb
from tuning.translation.draft import Draft
from tuning.translation.script import Script
from tuning.translation.yaml_part import read_file

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
    draft = Draft(path, target=f":{function}" if is_objective and function else "")
    try:
        if path.suffix == ".py":
            try:
                script = Script(draft, ast.parse(path.read_bytes()))
            except (SyntaxError, ValueError) as e:
                line = getattr(e, "lineno", 1)
                raise UserError(f"{path}:{line}: not valid Python") from None
            if is_objective and function:
                loader.find(like)
                if (objective := read_objective(like)) is None:
                    raise UserError(f"--like {like}: no function that takes a trial of Optuna")
                draft.set("trainable", like)
                optuna_source.translate(script, function, objective)
            else:
                ray_script.translate(script)
            script.note_unread()
        else:
            _translate_yaml(draft, path)
        return draft.text()
    except RecursionError:
        raise UserError(f"{path}: nested too deeply") from None


def _translate_yaml(draft: Draft, path: Path) -> None:
    file = read_file(path)
    if katib.is_experiment(file):
        katib.translate(draft, file)
    elif wandb.is_sweep(file):
        wandb.translate(draft, file)
    else:
        raise UserError(
            f"--like {path}: neither method and parameters (W&B), nor apiVersion: kubeflow.org/… "
            "and kind: Experiment (Katib)"
        )
    for part in file.unread():
        draft.note(part.line, f"{part} is not translated")
