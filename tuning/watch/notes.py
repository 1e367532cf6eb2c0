"""Stores a note about a sweep or a trial, and sends it to MLflow."""

from __future__ import annotations

from results.paths import SweepPaths
from results.records.notes import write_note
from results.records.spec_file import read_spec
from results.sweep_folder.folder import find_trial
from results.sweep_folder.lock import current_driver


def save_note(paths: SweepPaths, trial: str, text: str, tags: list[str]) -> str:
    """Store a note, and send it to MLflow if no driver runs the sweep; what was done, in words.

    Raises:
        UserError: there is no such trial, or it is too long.
    """
    if trial:
        find_trial(paths, trial)
    write_note(paths, trial, text, tags)
    spec = read_spec(paths)
    if spec.tracking.name == "none":
        return "saved"
    if current_driver(paths.lock):
        return "saved; MLflow gets it when the session ends"
    from tuning.controller.tracking.observer import delivery_note

    note = delivery_note(spec, paths)
    return f"saved; {note}" if note else "saved, in MLflow too"
