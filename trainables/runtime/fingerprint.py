"""What decides how a trial comes out, as one digest: its code, data, configuration and seed.

Trials of the same digest would be the same trial, as far as training is deterministic.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from search_spaces.nested import walk
from trainables.registry import TRAINABLES
from trainables.user_code import loader

_LONGEST_PATH = 4096


def identity(trainable: str, config: Mapping[str, Any], seed: int, *conditions: object) -> str:
    """The digest of a trial, as hexadecimal SHA-256.

    Args:
        trainable: its name; the code is the file that it names, or for a registered one its package
            and the modules that all trainables share. What these import from elsewhere is not seen.
        config: nested. Data are the files and folders that it names, by size and time of change;
            data on a hub are taken to be what their name says.
        seed: of the trial.
        conditions: what else matters, as plain data: the number of workers, where it ends.
    """
    parts = {
        "code": code_digest(trainable),
        "data": list(_files_named(config)),
        "config": config,
        "seed": seed,
        "conditions": conditions,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


@cache
def code_digest(trainable: str) -> str:
    """SHA-256 over the source files of a trainable, as they were when first asked for."""
    digest = hashlib.sha256()
    for path in _sources(trainable):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _sources(trainable: str) -> Iterable[Path]:
    if ":" in trainable:
        return [loader.find(trainable)]
    module = find_spec(TRAINABLES[trainable].partition(":")[0])
    assert module is not None, "a registered trainable is part of this program"
    assert module.origin is not None
    package = Path(module.origin).parent
    others = {name.split(".")[1] for name in TRAINABLES.values()} - {package.name}
    files = sorted(package.parent.rglob("*.py"))
    return [f for f in files if f.relative_to(package.parent).parts[0] not in others]


def _files_named(config: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    """Name, size and time of change (ns) of each file that a configuration names, or holds."""
    for _, value in walk(config):
        if not isinstance(value, str) or not 0 < len(value) < _LONGEST_PATH or "\0" in value:
            continue
        path = Path(value)
        if not path.is_absolute() or not path.exists():
            continue
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            status = file.stat()
            yield str(file), status.st_size, status.st_mtime_ns
