"""The trainables by name. Cheap to import: classes are loaded on demand."""

from __future__ import annotations

import os
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from search_spaces.errors import UserError, suggest
from search_spaces.nested import show
from search_spaces.spec.command import EXTERNAL, PREFIX
from search_spaces.spec.sweep import SweepSpec
from trainables.base import Trainable
from trainables.user_code import loader
from trainables.user_code.command.command import Command
from trainables.user_code.external import External
from trainables.user_code.frames import note_user_lines, user_lines
from trainables.user_code.optuna.objective import OptunaObjective
from trainables.user_code.optuna.source import read_objective
from trainables.user_code.ray_code import builds_trainer, is_tune_function, tune_class_methods
from trainables.user_code.ray_tune.trainables import TuneClass, TuneFunction
from trainables.user_code.user_loop import TrainerFunction, UserFunction, UserLoop

TRAINABLES: dict[str, str] = {
    "classifier": "trainables.classifier.config:Classifier",
    "causal_lm": "trainables.causal_lm.trainable:CausalLM",
    "digits": "trainables.digits.config:Digits",
    "distill": "trainables.distill.config:Distill",
    "dpo": "trainables.dpo.config:DPO",
    "federated": "trainables.federated.trainable:Federated",
    "grpo": "trainables.grpo.trainable:GRPO",
    "sft": "trainables.sft.config:SFT",
    "image_classifier": "trainables.image_classifier.config:ImageClassifier",
    "lightgbm": "trainables.tabular.lightgbm:LightGBM",
    "xgboost": "trainables.tabular.xgboost:XGBoost",
}
"""Name in a sweep file → `module:Class`. A new trainable is one line here."""


def resolve(name: str) -> Trainable[Any]:
    """The trainable of a sweep: registered, a command, or the user's own class or train loop.

    A user's class is imported; a train loop is not, its file is only parsed.

    Raises:
        UserError: there is none.
    """
    if name.startswith(PREFIX):
        return Command(name)
    if name == EXTERNAL:
        return External(name)
    found = _user_code(name) if ":" in name else _registered(name)
    found.name = name
    return found


def resolve_again(name: str) -> Trainable[Any]:
    """What `resolve` returned before, as long as the user's file is the same: it is parsed once.

    A sweep asks several times for each trial. Callers must not change what they get.

    Raises:
        UserError: there is none.
    """
    script = Path(name.rpartition(":")[0])
    status = script.stat() if script.is_file() else None
    version = (status.st_mtime_ns, status.st_size) if status else None
    return _resolved(name, os.getcwd(), version)


@lru_cache(16)
def _resolved(name: str, folder: str, version: tuple[int, int] | None) -> Trainable[Any]:
    return resolve(name)


def resolve_for(spec: SweepSpec) -> Trainable[Any]:
    """The trainable of a sweep, with the functions that its file names.

    Raises:
        UserError: there is none.
    """
    found = resolve(spec.trainable)
    found.use(spec.user_code)
    return found


def code_folder(name: str) -> Path:
    """The folder of a user's own code; the working directory if there is none."""
    if name.startswith(PREFIX):
        return Command(name).folder or Path.cwd()
    return loader.find(name).parent if ":" in name else Path.cwd()


def _registered(name: str) -> Trainable[Any]:
    if name not in TRAINABLES:
        hint = suggest(name, TRAINABLES)
        raise UserError(
            f"unknown trainable {show(name)}{hint}; your own code is path/to/script.py:function,"
            " package.module:function, or command: [python, script.py, …] in place of trainable"
        )
    module, _, cls = TRAINABLES[name].partition(":")
    found: Trainable[Any] = getattr(import_module(module), cls)()
    return found


def _user_code(name: str) -> Trainable[Any]:
    _, is_class = loader.locate(name)
    if not is_class:
        return _user_function(name)
    if tune_class_methods(name) is not None:
        return TuneClass(name)
    own = _load_class(name)
    if not (isinstance(own, type) and issubclass(own, Trainable)):
        raise UserError(f"trainable {name}: the class does not derive from Trainable")
    made = own()
    required = ["train", *(["evaluate"] if made.can_evaluate else [])]
    if missing := [f"{method}()" for method in required if not made.offers(method)]:
        raise UserError(f"trainable {name}: the class has no {' and no '.join(missing)}")
    return made


def _user_function(name: str) -> UserFunction:
    if read_objective(name) is not None:
        return OptunaObjective(name)
    if builds_trainer(name):
        return TrainerFunction(name)
    return TuneFunction(name) if is_tune_function(name) else UserLoop(name)


def _load_class(name: str) -> Any:
    try:
        return loader.load(name)
    except UserError:
        raise
    except (Exception, SystemExit) as e:
        note_user_lines(e)
        line = f"{type(e).__name__}: {e}".splitlines()[0]
        raise UserError(f"trainable {name}: cannot be imported: {line}{user_lines(e)}") from e
