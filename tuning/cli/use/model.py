"""The options with which a command names a model of a sweep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from search_spaces.errors import UserError
from tuning.cli.damage import intact
from tuning.cli.formatting import echo
from tuning.cli.options import soup_to_use, trusted_sweep

if TYPE_CHECKING:
    from results.paths import SweepPaths
    from search_spaces.spec.sweep import SweepSpec
    from tuning.evaluation.load_model import SelectedModel


@dataclass(frozen=True)
class ModelOptions:
    """`--trial` or `--soup` of a sweep; of a pipeline, of its last train stage."""

    trial: str | None
    soup: str | None
    trust: bool
    accept_damage: bool
    storage: str | None

    def select(self, sweep: str, verb: str) -> SelectedModel:
        """The model; without the two options the winner, or the average of the pipeline.

        Raises:
            UserError: see `select_model`; or the sweep is damaged, or not trusted.
        """
        from tuning.evaluation.load_model import select_model

        paths = intact(trusted_sweep(sweep, self.storage, self.trust), self.accept_damage)
        soup = soup_to_use(sweep, self.storage, self.trial, self.soup)
        return select_model(paths, self.trial, soup, verb)

    def of_export(self, folder: Path, verb: str) -> tuple[SweepPaths, str]:
        """The sweep in whose folder an export is, and its model.

        Raises:
            UserError: it is in none; see `select`.
        """
        from results.models.origins import origin_of

        if self.trial or self.soup:
            raise UserError("--trial and --soup: have no effect with the folder of an export")
        found = origin_of(str(folder.absolute() / "config.json"))
        if found is None or not found.model:
            raise UserError(f"{folder}: is in no sweep, to which the results of {verb} belong")
        root = str(found.folder)
        return intact(trusted_sweep(root, None, self.trust), self.accept_damage), found.model


def track(paths: SweepPaths, spec: SweepSpec, err: bool = False) -> None:
    """Send what was made of a sweep to MLflow; if that fails, `tune sync` sends it later."""
    from tuning.controller.tracking.observer import delivery_note

    if spec.tracking.name != "none" and (note := delivery_note(spec, paths)):
        echo(note, err=err)
