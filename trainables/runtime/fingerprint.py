"""One digest of everything that determines a trial's result: code, data, configuration and seed.

Two trials with the same digest give the same result, as far as training is deterministic.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from search_spaces.nested import walk

_LONGEST_PATH = 4096


def identity(
    source: Mapping[str, str], config: Mapping[str, Any], seed: int, *conditions: object
) -> str:
    """The digest of a trial, as hexadecimal SHA-256.

    Args:
        source: digests of the training code's files, see `Trainable.source`.
        config: nested. Files and folders that it names count by size and time of change; data on
            a hub count by name.
        conditions: other plain data that matters, such as the number of workers and the last step.
    """
    parts = {
        "code": dict(source),
        "data": list(_files_named(config)),
        "config": config,
        "seed": seed,
        "conditions": conditions,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _files_named(config: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    """Name, size and time of change (ns) of each file that a configuration names."""
    for _, value in walk(config):
        if not isinstance(value, str) or not 0 < len(value) < _LONGEST_PATH or "\0" in value:
            continue
        path = Path(value)
        if not path.is_absolute() or not path.exists():
            continue
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            with suppress(OSError):  # a link to nothing, or removed meanwhile
                status = file.stat()
                yield str(file), status.st_size, status.st_mtime_ns
