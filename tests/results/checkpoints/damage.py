"""Checkpoints, and ways to damage them."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from results.checkpoints.commit import newest_intact
from results.trial_paths import TrialPaths
from tests.results.written import write_checkpoint


def save(paths: TrialPaths, step: int, text: str = "", attempt: int = 1) -> None:
    files = {"model.safetensors": text or f"weights of {step}", "nested/rng.json": "{}"}
    write_checkpoint(paths, step, files, attempt)


def content(paths: TrialPaths) -> str | None:
    found = newest_intact(paths)
    return None if found is None else (found.folder / "model.safetensors").read_text()


def truncate(folder: Path) -> None:
    os.truncate(folder / "model.safetensors", 3)


def flip_a_bit(folder: Path) -> None:
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[0] ^= 1
    (folder / "model.safetensors").write_bytes(data)


def point_outside(folder: Path) -> None:
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace("nested/rng.json", "../../x"))


def be_of_another_step(folder: Path) -> None:
    shutil.copy(folder.with_name("step_00000001") / "manifest.json", folder)
    shutil.copy(folder.with_name("step_00000001") / "model.safetensors", folder)


DAMAGE: list[tuple[Callable[[Path], object], str]] = [
    (truncate, "model.safetensors has 3 bytes, not 12"),
    (flip_a_bit, "model.safetensors has another SHA-256"),
    (lambda f: (f / "manifest.json").unlink(), "manifest.json is missing"),
    (lambda f: (f / "manifest.json").write_text('{"step": 2, "fil'), "manifest.json is not read"),
    (lambda f: (f / "manifest.json").write_bytes(b"\xff\xfe"), "manifest.json is not readable"),
    (lambda f: (f / "nested" / "rng.json").unlink(), "nested/rng.json is missing"),
    (point_outside, "../../x points outside"),
    (be_of_another_step, "manifest.json is of step 1"),
]
