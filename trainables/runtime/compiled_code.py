"""What `torch.compile` made for a trial: dropped behind it, or kept for the next ones like it."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Hashable
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch

FOLDER = "TORCHINDUCTOR_CACHE_DIR"
"""Variable of torch: where it keeps code on disk."""
_OF_TORCH = "torchinductor_"
"""Begin of the name of torch's own folder, which it writes into the variable."""
KEPT_S = 30 * 86400
"""How long it stays there after its last use."""


class _CompiledCode:
    """Of this process; `key` is of what is kept, and `kept` says so of the trial that runs."""

    key: Hashable = None
    kept = False


_STATE = _CompiledCode()


def keep_compiled(key: Hashable) -> None:
    """Keep what this trial compiles for later ones with the same key.

    They trace nothing. For another key all is dropped, since a function is compiled only so many
    times until it is left as it is. Later sweeps on this machine find the code on disk.
    """
    _use_own_folder()
    if key != _STATE.key:
        _drop()
    _STATE.key, _STATE.kept = key, True


def end_trial() -> None:
    """Drop what is not kept: it may hold on to models."""
    if not _STATE.kept:
        _drop()
        _STATE.key = None
    _STATE.kept = False


def _drop() -> None:
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()


def _use_own_folder() -> None:
    """Let torch keep code where no other user can put any; its own folder has a name to guess."""
    if Path(os.environ.get(FOLDER, _OF_TORCH)).name.startswith(_OF_TORCH):
        with suppress(OSError, RuntimeError):  # no home, or one that is not ours
            os.environ[FOLDER] = str(_own_folder())


@cache
def _own_folder() -> Path:
    """Of this machine, as homes may be shared; files not used for long are removed first."""
    home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    every = Path(home) / "tune-platform" / "compiled"
    every.mkdir(parents=True, exist_ok=True)
    every.chmod(0o700)
    for place, _, names in os.walk(every):
        for file in (Path(place) / name for name in names):
            with suppress(OSError):
                if max(file.stat().st_atime, file.stat().st_mtime) < time.time() - KEPT_S:
                    file.unlink()
    folder = every / (platform.node() or "here")
    folder.mkdir(exist_ok=True)
    return folder
