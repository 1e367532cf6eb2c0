"""From a trainable's name to its code, and every mistake in its hyperparameters in plain words.

Cheap to import: what is registered is loaded on demand, and its `Config` needs no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from search_spaces.errors import UserError, suggest
from trainables.base import Trainable
from trainables.runtime.source import source_digests
from trainables.user_code import loader
from trainables.validation import explain

TRAINABLES: dict[str, str] = {
    "causal_lm": "trainables.causal_lm.trainable:CausalLM",
    "digits": "trainables.digits.trainable:Digits",
    "federated": "trainables.federated.trainable:Federated",
}
"""Name in a sweep file → `module:Class`. A new trainable is one line here."""


def is_foreign(name: str) -> bool:
    """Whether a name is of a train loop written for Ray Train's public API.

    It has a colon, as in `script.py:function`, and what it names is not a class.

    Raises:
        UserError: the file or the module is not there.
    """
    return ":" in name and not loader.is_class(name)


def resolve(name: str) -> Trainable[Any]:
    """The trainable that is registered under a name, or the class that `file.py:Class` names.

    Raises:
        UserError: there is none.
    """
    if ":" in name:
        own = loader.load(name)
        if not (isinstance(own, type) and issubclass(own, Trainable)):
            raise UserError(f"trainable {name}: the class does not derive from Trainable")
        return _complete(name, own())
    if name not in TRAINABLES:
        hint = suggest(name, TRAINABLES)
        raise UserError(
            f"unknown trainable '{name}'{hint}; your own code is"
            " path/to/script.py:function or package.module:function"
        )
    module, _, cls = TRAINABLES[name].partition(":")
    found = getattr(import_module(module), cls)()
    if not isinstance(found, Trainable):
        raise TypeError(f"{TRAINABLES[name]} is not a Trainable")
    return found


def _complete(name: str, own: Trainable[Any]) -> Trainable[Any]:
    if missing := [f"{method}()" for method in ("train", "evaluate") if not own.offers(method)]:
        raise UserError(f"trainable {name}: the class has no {' and no '.join(missing)}")
    return own


def source_of(name: str) -> Mapping[str, str]:
    """Digests of the files of a trainable, see `Trainable.source`."""
    if is_foreign(name):
        return source_digests(loader.find(name), loader.root_of(name))
    return resolve(name).source()


def check_config(name: str, config: Mapping[str, Any]) -> list[tuple[tuple[str, ...], str]]:
    """Every mistake in a trainable's hyperparameters: (path in the config, problem).

    A foreign loop takes what it is given: for it, only that the function exists is checked.

    Raises:
        UserError: there is no such trainable, file or function.
    """
    if is_foreign(name):
        loader.find(name)
        return []
    model = resolve(name).Config
    try:
        model.model_validate(dict(config))
    except ValidationError as e:
        return [explain(error, model) for error in e.errors(include_url=False)]
    return []


def misfits(
    name: str, config: Mapping[str, Any], workers: Sequence[int]
) -> list[tuple[tuple[str, ...], str]]:
    """What keeps a trial from having these numbers of workers: (path in the config, problem).

    An empty path is the trainable itself; a configuration that is wrong has other problems.
    """
    if is_foreign(name):
        said = "a Ray Train loop cannot change its number of workers; give one number"
        return [((), said)] if len(workers) > 1 else []
    trainable = resolve(name)
    if len(workers) > 1 and not trainable.elastic:
        return [((), f"{name} does not say that it can change its number of workers (elastic)")]
    try:
        found = trainable.Config.model_validate(dict(config)).validate_workers(workers)
    except ValidationError:
        return []
    return [] if found is None else [((found[0],), found[1])]


def checkpoint_bytes(name: str, config: Mapping[str, Any]) -> int | None:
    """About how many bytes a checkpoint takes: float32 weights and AdamW's two averages of them.

    None where nobody can know before it is there: a foreign loop, a pretrained model.
    """
    if is_foreign(name):
        return None
    checked = resolve(name).Config.model_validate(dict(config))
    parameters = getattr(checked, "num_parameters", None)
    return None if parameters is None else 3 * 4 * int(parameters)


def halve_micro_batch(name: str, config: Mapping[str, Any], workers: int) -> dict[str, Any] | None:
    """What to change in a configuration so that a step takes less memory and does the same.

    None where nothing can be: a foreign loop, a trainable without a micro-batch, one of size 1.
    """
    if is_foreign(name):
        return None
    return resolve(name).Config.model_validate(dict(config)).halve_micro_batch(workers)


def with_init_seed(name: str, config: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """A trial's configuration with the seed of its initial weights, unless it has its own."""
    if is_foreign(name):
        return dict(config)
    return resolve(name).Config.with_init_seed(dict(config), seed)


def resolve_paths(name: str, config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A configuration whose relative paths are taken from `folder`: workers run elsewhere."""
    if is_foreign(name):
        return dict(config)
    anchor = getattr(resolve(name).Config, "resolve_paths", None)
    return dict(config) if anchor is None else dict(anchor(config, folder))
