"""Write an exported model as a folder that appears whole or not at all, with a model card."""

from __future__ import annotations

from pathlib import Path

from results.checkpoints.commit import MANIFEST, CheckpointError, staged, verify
from results.export.exportable import ModelSource
from results.export.format import Format, make_format
from results.export.model_card import ModelCard, write_card
from results.export.verify import Verification, verify_export, write_report
from search_spaces.errors import UserError


def export_model(
    source: Path,
    target: Path,
    name: str,
    model: ModelSource,
    card: ModelCard,
    *,
    check: bool = True,
    force: bool = False,
) -> tuple[Verification, ...]:
    """Write a model in a format, and verify the copy before it appears at its target.

    Args:
        source: the checkpoint or soup from which the model is read; its hashes are verified first.
        target: the folder; appears complete, with a `README.md` model card, by a rename.
        name: of the format.
        check: run the copy in fresh processes and compare (`export_report.json`).
        force: replace an earlier export at `target`. Other folders are never replaced.

    Returns:
        The passed verifications of all installed runtimes; none without `check`.

    Raises:
        UserError: the source is damaged, the target exists, packages are missing, or the copy's
            outputs differ from the original's; no file is left then.
        NotImplementedError: the trainable does not support the format.
    """
    form = make_format(name)
    form.check_installed(name)
    try:
        verify(source)
    except CheckpointError as e:
        raise UserError(f"{e}; it cannot be exported") from e
    check_target(target, force)
    with staged(target) as folder:
        form.write(model, folder)
        checks = _verify(folder, name, form, model) if check else ()
        write_card(folder, card, name, form, checks)
        return checks


def _verify(folder: Path, name: str, form: Format, model: ModelSource) -> tuple[Verification, ...]:
    """Verify by each installed runtime; write `export_report.json`; stop at the first failure."""
    found = []
    for runtime in form.runtimes:
        if not runtime.installed:
            continue
        found.append(verify_export(folder, runtime, model.exportable))
        if not found[-1].passed:
            raise UserError(f"--to {name}: not exported, the copy differs: {found[-1].summary}")
    write_report(folder, found)
    return tuple(found)


def check_target(target: Path, force: bool) -> None:
    """Pass if an export may be written to a folder.

    Raises:
        UserError: it exists, and is not replaced; or it is not an earlier export.
    """
    if not target.exists():
        return
    if not force:
        raise UserError(f"{target}: exists already; replace it with --force")
    if not (target / MANIFEST).is_file():
        raise UserError(f"{target}: is not an earlier export, so --force does not replace it")
