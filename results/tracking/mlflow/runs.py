"""A sweep's runs in MLflow: updates them and sends nothing twice."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from results.analysis.cost import cost_shares
from results.records.evaluations import Evaluation
from results.records.trial import Report, TrialRecord, TrialState
from results.storage.fencing import Fence
from results.tracking.extras import Average, Extras, Winner
from results.tracking.mlflow.client import (
    AVERAGE_TAG,
    NOTE_TAG,
    PARENT_TAG,
    STOPPED_TAG,
    SWEEP_TAG,
    TRIAL_TAG,
    mlflow_name,
)
from results.tracking.mlflow.flows import link_output, logged_model, store_files
from results.tracking.mlflow.run_store import RunStore, StoredRun
from results.tracking.tracker import Ending, SweepFacts
from search_spaces.nested import flattened

_STATUS = {
    TrialState.COMPLETED: "FINISHED",
    TrialState.STOPPED: "FINISHED",
    TrialState.FAILED: "FAILED",
}
"""MLflow's status of a trial's run; those of the other states are KILLED."""
_PROPOSED_TAG = "tune.proposed"
"""Unix seconds of the proposal: a sweep that is set back may give a trial's id to another one."""


class Runs:
    """The runs of one sweep, found by their tags. Any method may raise what MLflow raises.

    After an error create a new object: it is unknown how much of the failed call MLflow stored.

    Args:
        uri, artifact_root, experiment, fence: see `RunStore`.
        facts: of the sweep.
    """

    def __init__(
        self, uri: str, artifact_root: Path | None, experiment: str, facts: SweepFacts, fence: Fence
    ) -> None:
        self._runs = RunStore(uri, artifact_root, experiment, fence)
        self._key, self._prices = facts.key, facts.prices
        self._is_population = facts.is_population
        self._children: dict[str, StoredRun] = {}
        self._averages: dict[str, StoredRun] = {}
        self._named: dict[str, tuple[StoredRun, float]] = {}
        parent, known = None, set()
        found = self._runs.find(SWEEP_TAG, facts.key)
        # of several runs of one trial the first is kept: what came late was never written to
        for run in sorted(found, key=lambda run: (-len(run.params) - len(run.metrics), run.id)):
            trial, average = (run.tags.get(tag) for tag in (TRIAL_TAG, AVERAGE_TAG))
            if (one := (trial, average, run.tags.get(_PROPOSED_TAG))) in known:
                self._runs.delete(run)  # a server made it after the call had timed out
                continue
            known.add(one)
            if trial is not None:
                self._children[trial] = run
            elif average is not None:
                self._averages[average] = run
            else:
                parent = run
        self._name = facts.name
        about = {NOTE_TAG: facts.description} if facts.description else {}
        self._parent = parent or self._create(facts.name, about, facts.started)
        self._runs.reopen(self._parent)
        tags = dict(facts.tags)
        if facts.pipeline is not None:
            tags[PARENT_TAG] = self._runs.pipeline(facts.pipeline).id
        self._runs.log(self._parent, params=facts.params, tags=tags)
        self._runs.store(self._parent, facts.artifacts)

    @property
    def run_id(self) -> str:
        """Id of the sweep's own run."""
        return self._parent.id

    def update(self, record: TrialRecord, reports: list[Report], extras: Extras) -> None:
        """Bring a trial's run up to date.

        Args:
            record: the present record.
            reports: those that may be new, oldest first.
            extras: empty while the trial runs.
        """
        tags = {"tune.attempt": str(len(record.attempts)), "tune.seed": str(record.seed)}
        tags["tune.workers"] = ", ".join(str(a.workers) for a in record.attempts)
        tags |= {"tune.state": record.state.value, "tune.reason": record.reason or "under way"}
        tags[STOPPED_TAG] = str(record.state is TrialState.STOPPED).lower()
        run = self._child(record)
        if run is None:
            started = record.attempts[0].started if record.attempts else record.created
            fixed = {TRIAL_TAG: record.id, PARENT_TAG: self._parent.id}
            fixed[_PROPOSED_TAG] = repr(record.created)
            logs = f"`tune logs {self._name} {record.id}`"
            fixed[NOTE_TAG] = f"Trial of sweep {self._name}. Logs: {logs}"
            run = self._children[record.id] = self._create(record.id, fixed, started)
        elif record.state.active:
            self._runs.reopen(run)
        params = {**flattened(record.config), **record.params}
        if self._is_population and not record.state.finished:  # MLflow keeps the first value
            params = {key: v for key, v in params.items() if key not in record.params}
        points = {(k, r.step): (v, r.time) for r in reports for k, v in r.metrics.items()}
        points |= {(key, step): (value, time) for key, step, time, value in extras.samples}
        if not record.state.active:
            points |= self._cost(record)
        metrics = self._runs.unsent(run, points)
        self._runs.log(run, params=params, tags={**tags, **extras.tags}, metrics=metrics)
        self._runs.store(run, extras.artifacts)
        if not record.state.active:
            ended = record.attempts[-1].ended if record.attempts else None
            self._runs.end(run, _STATUS.get(record.state, "KILLED"), ended or time.time())
        if record.state.finished:
            run.sent = None  # a sweep of days has millions of points; more of one are rare

    def _child(self, record: TrialRecord) -> StoredRun | None:
        """The run of a trial. That of another one, from before the folder was set back, ends."""
        run = self._children.get(record.id)
        if run and run.tags.get(_PROPOSED_TAG, repr(record.created)) != repr(record.created):
            self._runs.delete(run)
            return None
        return run

    def _cost(self, record: TrialRecord) -> dict[tuple[str, int], tuple[float, float]]:
        """The cost of a trial that has ended, and its useless part; by number of attempts."""
        if self._prices is None or not record.attempts:
            return {}
        shares, last = cost_shares([record], self._prices), record.attempts[-1]
        values = {"cost": shares.total, **{f"cost_{why}": c for why, c in shares.wasted.items()}}
        return {
            (f"tune/{name}", last.number): (cost.cost, last.ended or time.time())
            for name, cost in values.items()
        }

    def average(self, average: Average) -> None:
        """Bring the run of an average of weights up to date."""
        run = self._averages.get(average.digest)
        if run is None:
            fixed = {AVERAGE_TAG: average.digest, PARENT_TAG: self._parent.id}
            run = self._create(average.name, fixed, average.created)
            self._averages[average.digest] = run
        self._named[average.name] = run, average.created
        if not run.running:
            return
        runs = ", ".join(self._children[m].id for m in average.members if m in self._children)
        points = {(key, 0): (value, average.created) for key, value in average.metrics.items()}
        metrics = self._runs.unsent(run, points)
        tags = {**average.tags, "tune.member_runs": runs}
        self._runs.log(run, params=average.params, tags=tags, metrics=metrics)
        self._runs.store(run, average.artifacts)
        self._runs.end(run, "FINISHED", average.created)

    def evaluation(self, made: Evaluation) -> None:
        """Log the scores of a trial or average on its run; steps are Unix seconds."""
        run, since = self._named.get(made.model, (self._children.get(made.model), 0.0))
        if run is None or made.created < since:  # of an earlier average with this name
            return
        points = {(name, int(made.created)): (v, made.created) for name, v in made.metrics.items()}
        self._runs.log(run, metrics=self._runs.unsent(run, points))

    def tag(self, tags: Mapping[str, str]) -> None:
        """Set tags of the sweep's own run."""
        self._runs.log(self._parent, tags=tags)

    def end(self, ending: Ending) -> None:
        """The session has ended: set the status of every run that is still running."""
        from mlflow.entities import Metric

        for child in self._children.values():
            if child.running:
                self._runs.end(child, "KILLED", ending.time)
        at = int(ending.time * 1000)
        values = [Metric(mlflow_name(k), v, at, 0) for k, v in ending.metrics.items()]
        self._runs.log(self._parent, metrics=values)
        self._runs.end(self._parent, ending.status, ending.time)

    def log_model(self, winner: Winner) -> None:
        """Log the weights of the winner as a model that its run and the sweep's put out."""
        source = self._children[winner.trial]
        model = logged_model(self._runs, self._key, winner.paths, winner.trial, source)
        store_files(self._runs, model, winner)
        for run in (source, self._parent):
            link_output(self._runs, run, model)
        tags = {"tune.winner": winner.trial, "tune.why": winner.why}
        self._runs.log(self._parent, tags=tags)

    def _create(self, name: str, tags: Mapping[str, str], started: float) -> StoredRun:
        return self._runs.create(name, {SWEEP_TAG: self._key, **tags}, started)
