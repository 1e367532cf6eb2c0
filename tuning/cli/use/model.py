"""The options with which a command names a model of a sweep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuning.cli.damage import intact
from tuning.cli.options import soup_to_use, trusted_sweep

if TYPE_CHECKING:
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
