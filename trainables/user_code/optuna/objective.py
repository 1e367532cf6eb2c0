"""An Optuna objective, `objective(trial)`, as a trainable; nothing is imported from Optuna.

The sweep chooses the values: `suggest_float` and its like return those of the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from search_spaces.errors import quantity, suggest
from search_spaces.nested import flattened
from search_spaces.spec.sweep import SweepSpec
from trainables.config import Problem
from trainables.job import Pruned
from trainables.user_code import loader
from trainables.user_code.optuna.source import ObjectiveSource, read_objective
from trainables.user_code.optuna.sweep_trial import MEMBERS, SweepTrial
from trainables.user_code.private_folders import private_folders
from trainables.user_code.user_loop import UncheckedConfig, UserFunction

if TYPE_CHECKING:
    from trainables.worker import Worker

_PRUNED = "TrialPruned"
"""Name of the exception by which an objective ends early."""


class OptunaObjective(UserFunction):
    """Calls the objective, which reports intermediate values and returns the last one.

    It saves no checkpoints, so a new attempt begins again.
    """

    kind, article = "Optuna objective", "an"
    gets_config = False
    to_pause = "a kind of code that saves checkpoints"

    def train(self, config: UncheckedConfig, worker: Worker) -> None:
        """Call the objective with a `SweepTrial`; see the base class.

        Raises:
            UserError: the objective and the space do not fit together.
            Pruned: the objective gave the trial up itself.
        """
        trial = SweepTrial(worker, flattened(worker.job.config))
        objective = loader.load(self.name)  # its path may be relative
        try:
            with private_folders(worker.job.paths):
                value = objective(trial)
        except Exception as e:
            if not any(c.__name__ == _PRUNED for c in type(e).__mro__):
                raise
            if not trial.should_prune():
                raise Pruned(str(e) or "the objective pruned it") from e
            return
        if not trial.should_prune():
            trial.finish(value)

    def code_problems(self) -> list[str]:
        """Also members of Optuna's trial that a sweep does not offer; see the base class."""
        members = [m for m in self._source().members if m.name not in MEMBERS]
        return [
            *super().code_problems(),
            *(f"{m.place}: uses trial.{m.name}{suggest(m.name, MEMBERS)}" for m in members),
        ]

    def setting_problems(
        self, spec: SweepSpec, configs: Sequence[Mapping[str, Any]]
    ) -> list[Problem]:
        """Parameters that the objective never asks for, and numbers of values; see the base
        class.
        """
        source, count = self._source(), len(spec.objectives)
        found = super().setting_problems(spec, configs)
        asked = [m.argument for m in source.members if m.suggests]
        if not source.is_passed_on and None not in asked:
            names = {m for m in asked if m is not None}
            given = {name for config in configs for name in flattened(config)} - {"seed"}
            for name in sorted(given - names):
                section = "fixed" if name in flattened(spec.fixed) else "space"
                problem = f"the objective never asks for '{name}'{suggest(name, names)}"
                found.append(((section, *name.split(".")), problem))
        for number in sorted(source.num_values - {count}):
            returned = quantity(number, "value")
            problem = f"names {count}, and the objective returns {returned}"
            found.append((("metric",), problem))
        if count > 1 and (reports := [m for m in source.members if m.name == "report"]):
            problem = "an objective of several metrics returns them, and reports none"
            found.append((("metric",), f"{reports[0].place}: {problem}"))
        return found

    def config_problems(self, config: Mapping[str, Any], *, files: bool) -> list[Problem]:
        """Names that the objective asks for and that the configuration lacks."""
        names = flattened(config)
        return [
            ((), f"{m.place}: asks for '{m.argument}', which neither space nor fixed has")
            for m in self._source().members
            if m.suggests and m.always and m.argument is not None and m.argument not in names
        ]

    def _source(self) -> ObjectiveSource:
        return read_objective(self.name) or ObjectiveSource()
