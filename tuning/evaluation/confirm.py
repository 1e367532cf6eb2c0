"""Confirms the best trials: measures every objective again, with new seeds or the same weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from results.analysis.confirmation import Confirmation, ConfirmedTrial, Remeasurement
from results.analysis.leaderboard import TrialSummary, one_per_configuration
from results.analysis.selection import rank_candidates, selection_objectives, value_of
from results.paths import SweepPaths
from results.records.trial import read_reports
from search_spaces.errors import UserError, suggest
from search_spaces.spec.select import SelectSpec
from search_spaces.spec.sweep import SweepSpec
from tuning.evaluation.progress import PrintLine
from tuning.evaluation.retrain import Retrainer, Retraining
from tuning.search.evidence import derive_seed

_FIRST_NUMBER = 1 << 31
"""Seeds of confirmations are derived from numbers from here on, which no trial has."""
_Values = dict[str, float]


class Confirmer:
    """Trains and evaluates trials again.

    The value of an objective is that on the test split if models can be evaluated there. An
    objective that the evaluation does not return (memory, seconds) is taken from the reports.
    """

    def __init__(
        self,
        paths: SweepPaths,
        spec: SweepSpec,
        select: SelectSpec,
        address: str | None,
        print_line: PrintLine,
    ) -> None:
        self._paths, self._spec, self._select = paths, spec, select
        self._retrainer, self.print_line = Retrainer(paths, spec, address), print_line
        self._modes = selection_objectives(spec, select)

    @property
    def can_evaluate(self) -> bool:
        """Whether models can be evaluated on the test split."""
        return self._retrainer.can_evaluate

    def best(self, count: int) -> list[TrialSummary]:
        """The best trials, one of each configuration, best first.

        Raises:
            UserError: no trial has a value.
        """
        ranked = rank_candidates(self._paths, self._spec, self._select)
        return one_per_configuration(ranked)[:count]

    def retrain(self, lines: Sequence[TrialSummary], seeds: int) -> Confirmation:
        """Train each trial again under new seeds, then evaluate each model on the test split.

        An interrupted call can be repeated: it does not repeat finished training.
        """
        new = tuple(derive_seed(self._spec.seed, _FIRST_NUMBER + i) for i in range(seeds))
        trainings = [Retraining(line.record, line.step, seed) for line in lines for seed in new]
        self._retrainer.train(trainings, self.print_line)
        return self._confirmation(new, [self._measure_retrained(line, new) for line in lines])

    def reevaluate(self, lines: Sequence[TrialSummary]) -> Confirmation:
        """Evaluate the weights of the search on the test split: one value per trial.

        Raises:
            UserError: the models cannot be evaluated, or the evaluation lacks an objective.
        """
        if not self.can_evaluate:
            raise UserError(
                f"trainable {self._spec.trainable}: only the code itself can read its "
                "checkpoints, so they cannot be evaluated here; leave --reevaluate out to train "
                "again, or name a function for it: user_code.evaluate"
            )
        measured = []
        for line in lines:
            scores = self._retrainer.scores(line.record, self._paths.trial(line.record.id))
            test = self._objective_values(scores, {})
            self.print_line(f"{line.record.id}  {_words(test)} on the test split")
            measured.append(self._confirmed(line, [], [test]))
        return self._confirmation((), measured)

    def _measure_retrained(self, line: TrialSummary, seeds: Sequence[int]) -> ConfirmedTrial:
        selection, test = [], []
        for seed in seeds:
            files = self._paths.retrained(line.record.id, seed)
            reports = read_reports(files)
            newest = {k: v for r in reports for k, v in r.metrics.items()}
            names = [name for name in self._modes if name in newest]
            found = {n: value_of(reports, n, self._modes[n], self._select) for n in names}
            selection.append({n: newest[n] if v is None else v for n, v in found.items()})
            scores = newest | selection[-1]
            if self.can_evaluate:
                scores = self._retrainer.scores(line.record, files, seed)
            test.append(self._objective_values(scores, selection[-1]))
            where = "on the selection split"
            if self.can_evaluate:
                where += f", {_words(test[-1])} on the test split"
            self.print_line(f"{line.record.id} seed {seed}  {_words(selection[-1])} {where}")
        return self._confirmed(line, selection, test)

    def _objective_values(
        self, scores: Mapping[str, float], reported: Mapping[str, float]
    ) -> _Values:
        """Each objective's score; its reported value if only other objectives have a score."""
        any_score = any(name in scores for name in self._modes)
        known = {**reported, **scores} if any_score else scores
        for name in self._modes:
            if name not in known:
                raise UserError(
                    f"trainable {self._spec.trainable}: evaluate returns no '{name}'"
                    f"{suggest(name, scores)}"
                )
        return {name: known[name] for name in self._modes}

    def _confirmed(
        self, line: TrialSummary, selection: Sequence[_Values], test: Sequence[_Values]
    ) -> ConfirmedTrial:
        series = {}
        for name in self._modes:  # the search ranked by the mean, if it ran under several seeds
            ranked = line.value if line.mean is None else line.mean
            search = ranked if name == self._spec.metric else line.values.get(name)
            assert search is not None, "trials without a value are not ranked"
            series[name] = Remeasurement(
                search=search,
                selection=tuple(values[name] for values in selection),
                test=tuple(values[name] for values in test),
            )
        return ConfirmedTrial(trial=line.record.id, series=series)

    def _confirmation(
        self, seeds: tuple[int, ...], measured: Sequence[ConfirmedTrial]
    ) -> Confirmation:
        return Confirmation(
            modes=self._modes,
            seeds=seeds,
            trials=tuple(measured),
            rule=self._select.rule,
            weights=self._select.weights,
            judged=self.can_evaluate,
        )


def _words(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())
