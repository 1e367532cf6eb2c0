"""Measures the best trials again, in every objective: under fresh seeds, or as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from results.analysis.confirmation import Confirmation, ConfirmedTrial, Remeasurement
from results.analysis.leaderboard import TrialSummary
from results.analysis.selection import selection_objectives
from results.paths import SweepPaths
from results.records.trial import TrialRecord, read_reports
from search_spaces.errors import UserError, suggest
from search_spaces.spec.sweep import SelectSpec, SweepSpec
from tuning.evaluation.retrain import PrintLine, Retrainer
from tuning.search.study import derive_seed

_FRESH = 1 << 31
"""Seeds of confirmations are derived from numbers that no trial has."""
_Values = dict[str, float]


class Confirmer:
    """Trains and judges trials again.

    Where models can be judged on the test split, an objective is what they get there; one of
    several that the judge does not know (memory, seconds) is what the training reports.
    """

    def __init__(
        self,
        paths: SweepPaths,
        spec: SweepSpec,
        select: SelectSpec,
        again: Retrainer,
        say: PrintLine,
    ) -> None:
        self._paths, self._spec, self._select = paths, spec, select
        self._again, self._say = again, say
        self._modes = selection_objectives(spec, select)

    def retrain(self, lines: Sequence[TrialSummary], seeds: int) -> Confirmation:
        """Train each trial anew under fresh seeds, and judge it on the test split.

        What was trained before is not trained again: an interrupted call goes on.
        """
        fresh = tuple(derive_seed(self._spec.seed, _FRESH + i) for i in range(seeds))
        return self._confirmation(fresh, [self._retrained(line, fresh) for line in lines])

    def reevaluate(self, lines: Sequence[TrialSummary]) -> Confirmation:
        """Judge the weights that the search left, on the test split: one value for each.

        Raises:
            UserError: these models cannot be judged here, or an objective not by them.
        """
        if not self._again.judged:
            raise UserError(
                f"trainable {self._spec.trainable}: only the loop can read its checkpoints, so its "
                "weights cannot be judged here; leave --reevaluate out to train again"
            )
        measured = []
        for line in lines:
            test = self._judged(line.record, {})
            self._say(f"{line.record.id}  {_words(test)} on the test split")
            measured.append(self._measured(line, [], [test]))
        return self._confirmation((), measured)

    def _retrained(self, line: TrialSummary, seeds: Sequence[int]) -> ConfirmedTrial:
        selection, test = [], []
        for seed in seeds:
            files = self._paths.retrained(line.record.id, seed)
            self._again.train(line.record, files, line.step, seed)
            newest = {k: v for r in read_reports(files) for k, v in r.metrics.items()}
            selection.append({name: newest[name] for name in self._modes if name in newest})
            known = self._again.scores(line.record, files) if self._again.judged else newest
            test.append(self._complete(known, selection[-1]))
            where = "on the selection split"
            if self._again.judged:
                where += f", {_words(test[-1])} on the test split"
            self._say(f"{line.record.id} seed {seed}  {_words(selection[-1])} {where}")
        return self._measured(line, selection, test)

    def _judged(self, record: TrialRecord, reported: Mapping[str, float]) -> _Values:
        scores = self._again.scores(record, self._paths.trial(record.id))
        return self._complete(scores, reported)

    def _complete(self, scores: Mapping[str, float], reported: Mapping[str, float]) -> _Values:
        """Every objective's value: as judged, else as reported where another one was judged."""
        several = any(name in scores for name in self._modes)
        known = {**reported, **scores} if several else scores
        for name in self._modes:
            if name not in known:
                raise UserError(
                    f"trainable {self._spec.trainable}: evaluate gives no '{name}'"
                    f"{suggest(name, scores)}"
                )
        return {name: known[name] for name in self._modes}

    def _measured(
        self, line: TrialSummary, selection: Sequence[_Values], test: Sequence[_Values]
    ) -> ConfirmedTrial:
        series = {
            name: Remeasurement(
                search=_value(line, name, self._spec.metric),
                selection=tuple(values[name] for values in selection),
                test=tuple(values[name] for values in test),
            )
            for name in self._modes
        }
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
            judged=self._again.judged,
        )


def _value(line: TrialSummary, name: str, first: str) -> float:
    """The value that counted, of several seeds their mean."""
    if name == first and line.mean is not None:
        return line.mean
    value = line.value if name == first else line.values.get(name)
    assert value is not None, "trials without a value are not ranked"
    return value


def _words(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())
