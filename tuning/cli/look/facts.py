"""What `tune show` says as data: a sweep with its trials, a trial, or the stages of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from results.analysis.leaderboard import TrialSummary
    from results.analysis.selection import Trial
    from results.paths import SweepPaths
    from results.records.integrity import Integrity
    from results.records.pipeline import PipelinePaths
    from search_spaces.spec.sweep import SweepSpec


@dataclass(frozen=True)
class Board:
    """The trials of a sweep.

    Attributes:
        trials: with reports; the last one alone where it says what all do.
        lines: the trials in order, the best first.
    """

    trials: list[Trial]
    lines: list[TrialSummary]

    @classmethod
    def read(cls, found: Integrity, spec: SweepSpec) -> Board:
        """Rank the trials that can be read."""
        from results.analysis.cost import close_silent_attempts
        from results.analysis.leaderboard import rank_trials, summarize

        trials = close_silent_attempts(found.readable, _trials(found, spec))
        metric, mode = spec.metric, spec.mode  # each computed at every use
        lines = rank_trials([summarize(*trial, metric, mode) for trial in trials], mode)
        return cls(trials, lines)


def _trials(found: Integrity, spec: SweepSpec) -> Iterator[Trial]:
    """Every trial, and its last report where that says what all do: parsing takes most time."""
    from results.analysis.selection import selection_objectives

    if spec.select.at != "last":
        return found.trials()
    metrics = {*selection_objectives(spec, spec.select), *(o.metric for o in spec.objectives)}
    return found.last_reports(metrics, in_all=True)


def sweep_facts(found: Integrity, spec: SweepSpec, state: str) -> dict[str, Any]:
    """A sweep and a line for each of its trials; `state` is that of `sweep_state`."""
    from results.analysis import confirmation
    from results.analysis.cost import total_cost
    from results.analysis.rungs import rung_evidence, rung_trials
    from results.sweep_folder.folder import read_state
    from results.sweep_folder.lock import current_driver
    from tuning.cli.summary import leaders, winner

    paths, board = found.readable, Board.read(found, spec)
    chosen = winner(paths, spec, board.trials)
    evidence = rung_evidence(spec, rung_trials(spec, found), confirmation.read(paths))
    return {
        "sweep": paths.name,
        "folder": paths.root,
        "state": state,
        "driver": current_driver(paths.lock),
        "ended": (read_state(paths).ended if state == "done" else "") or None,
        "objectives": {o.metric: o.mode for o in spec.objectives},
        "budget": spec.budget.model_dump(mode="json", exclude_none=True),
        "cost": asdict(total_cost((e.record for e in board.lines), spec.prices)),
        "winner": chosen.line.record.id if chosen else None,
        "why": chosen.why if chosen else None,
        "leaders": leaders(paths, spec, board.trials),
        "early_values": {**asdict(evidence), "misleading": evidence.misleading}
        if evidence
        else None,
        "trials": [_line(e, spec) for e in board.lines],
        "problems": found.problems,
    }


def _line(line: TrialSummary, spec: SweepSpec) -> dict[str, Any]:
    record, metrics = line.record, [o.metric for o in spec.objectives]
    return {
        "id": record.id,
        "state": record.state,
        "reason": record.reason,
        "step": line.step,
        "values": {**{m: line.values.get(m) for m in metrics}, spec.metric: line.value},
        "params": record.params,
        "seed": record.seed,
        "seconds": record.seconds,
        "attempts": len(record.attempts),
    }


def trial_facts(paths: SweepPaths, trial: str) -> dict[str, Any]:
    """What is recorded of one trial: the members of its `trial.json`, its reports and files."""
    from results.analysis.cost import close_silent_attempts
    from results.checkpoints.commit import damaged_checkpoints
    from results.records.trial import read_reports, read_trial
    from results.sweep_folder.folder import find_trial

    files = find_trial(paths, trial)
    record = read_trial(files)
    reports = read_reports(files, record.end_step)
    [(ended, _)] = close_silent_attempts(paths, [(record, reports)])
    return {
        "sweep": paths.name,
        "folder": files.root,
        **ended.model_dump(mode="json"),
        "reports": [{"step": r.step, "metrics": r.metrics, "time": r.time} for r in reports],
        "checkpoints": {step: files.checkpoint(step) for step in files.checkpoint_steps()},
        "damaged": [str(problem) for problem in damaged_checkpoints(files)],
    }


def pipeline_facts(paths: PipelinePaths) -> dict[str, Any]:
    """The stages of a pipeline: the state of each, and what it put out."""
    from results.models.stages import read_stages, stage_state
    from results.models.winners import winners_by_later_stages
    from results.sweep_folder.lock import current_driver
    from search_spaces.pipeline.graph import dependencies
    from search_spaces.pipeline.loading import load_pipeline

    pipeline, records = load_pipeline(paths.spec), read_stages(paths).stages
    driver, chosen = current_driver(paths.lock), winners_by_later_stages(pipeline, paths)
    stages = []
    for name in pipeline.order:
        stage, record = pipeline.stages[name], records.get(name)
        stages.append(
            {
                "name": name,
                "kind": stage.kind,
                "after": list(dependencies(name, pipeline.stages)),
                "state": stage_state(record, driven=driver is not None),
                "seconds": record.seconds if record else None,
                "result": record.result if record else {},
                "winner": chosen.get(name),
                "chosen_by": getattr(stage, "choose_by", None),
            }
        )
    done = sum(record.done for name, record in records.items() if name in pipeline.stages)
    return {
        "pipeline": paths.name,
        "folder": paths.root,
        "driver": driver,
        "done": done,
        "stages": stages,
    }
