"""Write the report of a sweep; the live page shows the same sections."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from results.analysis.cost import cost_shares, total_cost
from results.analysis.leaderboard import TrialSummary
from results.analysis.pareto import MAX_COMPARED
from results.analysis.rungs import rung_evidence
from results.paths import SweepPaths
from results.records.notes import Note
from results.records.trial import TrialState
from results.report.page import (
    PageSection,
    number,
    section_messages,
    setting,
    unit_for,
    write_page,
)
from results.report.plots import figures
from results.report.plots.figures import BEST, RUNG, STATES
from results.report.plots.rungs import (
    HEADER,
    inheritance_figure,
    inheritance_rows,
    rungs_figure,
    timeline,
)
from results.report.plots.workers import (
    idle_share,
    phases_figure,
    phases_notes,
    workers_figure,
)
from results.report.sweep_data import SweepData, failure_classes
from results.report.trial_rows import MAX_POINTS, all_details, points_per_curve, trial_rows
from search_spaces.errors import first_few

_MAX_EVENTS = 100


def write_report(paths: SweepPaths, data: SweepData, target: Path) -> None:
    """Write the report of a sweep."""
    index = paths.storage.index
    write_page(
        target,
        data.spec.name,
        lead(data),
        [
            ("head", head(data)),
            ("trials", trial_rows(data)),
            *section_messages(sections(data)),
            ("details", all_details(paths, data)),
        ],
        winner=winner(data),
        state=state(data),
        home=os.path.relpath(index, target.parent) if index.is_file() else "",
        of_sweep=True,
    )


def state(data: SweepData) -> str:
    """Whether the sweep is done, in words."""
    if not data.finished:
        return "not done"
    return f"done ({data.ended})" if data.ended else "done"


def head(data: SweepData) -> dict[str, Any]:
    """What charts.js needs to know of the sweep, and the text at the top."""
    spec, domains = data.spec, data.spec.domains()
    important = [name for one in data.importances[:1] for name in one.shares]
    used = [name for e in data.summaries for name in e.record.params]
    note, ends = data.notes.get("", Note()), [of[-1] for _, of in data.trials if of]
    return {
        "title": spec.name,
        "lead": lead(data),
        "winner": winner(data),
        "state": state(data),
        "finished": data.finished,
        "winnerTrial": data.selection.line.record.id if data.selection else "",
        "objectives": [(d.spec.metric, d.spec.mode) for d in data.objectives],
        "parameters": list(dict.fromkeys([*important, *domains, *used])),
        "axes": {
            name: {"log": d.log, "categories": d.is_categorical} for name, d in domains.items()
        },
        "rungs": data.rung_steps if all(data.clock(r) == r.step for r in ends) else (),
        "currency": spec.prices.currency if spec.prices else "",
        "remarks": list(_remarks(data)),
        "note": note.text,
        "tags": note.tags,
        "colours": {"states": STATES, "best": BEST, "rung": RUNG},
    }


def lead(data: SweepData) -> list[str]:
    """What the sweep is, how far it is, what it cost, when and where it ran."""
    spec, states = data.spec, Counter(e.record.state for e in data.summaries)
    count = ", ".join(f"{n} {state.value}" for state, n in states.most_common())
    lines = [spec.description] if spec.description else []
    goals = ", ".join(f"{d.spec.mode}imize {d.spec.metric}" for d in data.objectives)
    name = data.searcher or spec.search.name
    chosen = " (chosen by auto)" if name != spec.search.name else ""
    code, scheduler = spec.trainable.rpartition("/")[2], spec.scheduler.name
    lines.append(f"{goals} of {code}; searcher {name}{chosen}, scheduler {scheduler}")
    spent = cost_shares((e.record for e in data.summaries), spec.prices)
    lines.append(f"{len(data.summaries)} trials: {count or 'none yet'}; spent {spent}")
    return [*lines, *_facts(data)]


def _facts(data: SweepData) -> Iterator[str]:
    """Date; host and hardware; versions; commit: a line each, as far as it is known."""
    if attempts := [a for record, _ in data.trials for a in record.attempts]:
        ends = [a.ended for a in attempts if a.ended is not None]
        all_ended = data.finished and len(ends) == len(attempts)
        ended = f", ended {_moment(max(ends))}" if all_ended else ""
        yield f"started {_moment(min(a.started for a in attempts))}{ended}"
    found = data.environments
    if hosts := list(dict.fromkeys(one.host for one in found if one.host)):
        parts = (one.hardware.get(name) for one in found for name in ("device", "processor"))
        hardware = list(dict.fromkeys(part for part in parts if part))
        yield f"on {first_few(hosts)}" + (f": {first_few(hardware)}" if hardware else "")
    versions = {name: one.versions[name] for one in found for name in one.versions}
    versions.pop("generation", None)  # a number of this project
    if versions:
        differ = any(one.versions != found[0].versions for one in found)
        words = ", ".join(f"{name} {version}" for name, version in versions.items())
        yield words + " (not the same in all trials)" * differ
    if data.commit:
        yield f"commit {data.commit}"


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(seconds))


def winner(data: SweepData) -> list[str]:
    """Which trial won, why, and how reliable that is."""
    if data.selection is None:
        return []
    first = data.selection.line
    params = ", ".join(f"{k} = {setting(v)}" for k, v in first.record.params.items())
    others = {d.spec.metric: first.values.get(d.spec.metric) for d in data.others}
    pairs = {data.spec.metric: first.value, **others}
    values = ", ".join(f"{name} {number(value)}" for name, value in pairs.items())
    title = "Winner" if data.finished or data.selection.confirmed else "Best so far"
    lines = [
        f"{title}: {first.record.id}, {values} at step {first.step} ({params}).",
        f"Why: {data.selection.why}.",
    ]
    lines += _second(data, first)
    if not data.selection.confirmed and data.spec.can_be_confirmed:
        lines.append(
            f"The best of many noisy values is biased: measure it again with "
            f"tune best {data.argument} --confirm 3."
        )
    return lines


def _second(data: SweepData, first: TrialSummary) -> Iterator[str]:
    """The trial after the winner, by the values that decided, of a single objective."""
    if data.others:
        return
    values = [(e.record.id, e.value or 0.0) for e in data.ranked if e.record.id != first.record.id]
    best = first.value or 0.0
    if data.selection and data.selection.confirmed and (made := data.confirmation):
        best, *means = (m.means[data.spec.metric] for m in made.front)
        values = list(zip((m.trial for m in made.front[1:]), means, strict=True))
    if values:
        rival, value = values[0]
        gap = abs(best - value)
        difference = f"a difference of {gap:.3g}" if gap else "the same value"
        yield f"Second is {rival} with {number(value)}: {difference}."


def _remarks(data: SweepData) -> Iterator[str]:
    """What the charts leave out."""
    if (points := points_per_curve(data)) < MAX_POINTS:
        yield f"Each curve has {points} points at most."
    if not all(one.has_variance for one in data.objectives):
        left_out = f"a value is beyond {MAX_COMPARED:g}, so that the variance cannot be computed"
        yield f"The importance of parameters is left out: {left_out}."


def sections(data: SweepData) -> Iterator[PageSection]:
    """The sections beside those of charts.js, one by one: each takes a while in a large sweep.

    Some are empty.
    """
    for one in data.objectives:
        yield _importance(one)
    evidence = rung_evidence(data.spec, data.trials, data.confirmation)
    advice = evidence.advice(data.argument) if evidence else ""
    notes = [f"{advice[0].upper()}{advice[1:]}."] if advice else []
    yield PageSection("Rungs and promotions", notes, rungs_figure(data))
    yield PageSection("Where the time goes", phases_notes(data), phases_figure(data))
    yield _cost(data)
    share = idle_share(data)
    notes = ["A row is a group of workers, found from the times of the attempts."]
    notes.append(f"Groups are idle for {share:.0%} of the time between their first and last trial.")
    yield PageSection("Workers by trial", notes, workers_figure(data))
    notes = ["An arrow points from the trial whose weights were copied to the one that continued."]
    rows = inheritance_rows(data)
    yield PageSection("Inherited weights", notes, inheritance_figure(data), HEADER, rows)
    yield _confirmation(data)
    failures = [
        [f.name, f.attempts, first_few(f.trials), ", ".join(f.remedies) or "-", f.example]
        for f in failure_classes([e.record for e in data.summaries])
    ]
    header = ["class", "attempts", "trials", "treated as", "for example"]
    yield PageSection("Failures", header=header, rows=failures)
    happened = [
        [time.strftime("%m-%d %H:%M:%S", time.localtime(event.time)), event.trial, event.text]
        for event in timeline(data)[-_MAX_EVENTS:][::-1]
    ]
    yield PageSection("What happened", header=("time", "trial", "what"), rows=happened)


def _importance(data: SweepData) -> PageSection:
    """Of one objective; the title names the metric if there are several."""
    of = f": {data.spec.metric}" if data.is_one_of_several else ""
    notes = [
        f"Computed from the metric at step {one.step}, which {one.trials} trials reached: "
        "values at other steps are not comparable."
        for one in data.importances[:1]
    ]
    for one in data.importances[:1]:
        if left_out := [name for name in data.spec.domains() if name not in one.shares]:
            notes.append(f"Left out, since not all trials have them: {first_few(left_out)}.")
    return PageSection(f"Parameter importance{of}", notes, figures.importances(data), place=40)


def _confirmation(data: SweepData) -> PageSection:
    made = data.confirmation
    if made is None:
        return PageSection("Confirmation")
    measured = f"Measured again {made.where}, {len(made.seeds) or 'no'} fresh seeds each."
    text = [measured, *(f"{line[0].upper()}{line[1:]}." for line in made.bias_lines)]
    rows = [
        [m.trial, name, *map(number, (of.search, of.mean, of.half_width, len(of.test)))]
        for m in made.trials
        for name, of in m.series.items()
    ]
    header = ["trial", "objective", "in the search", f"mean {made.where}", "± (95 %)", "values"]
    return PageSection("Confirmation", text, header=header, rows=rows)


def _cost(data: SweepData) -> PageSection:
    spent: defaultdict[TrialState, float] = defaultdict(float)
    for line in data.summaries:
        spent[line.record.state] += line.record.worker_seconds
    unit = unit_for(sum(spent.values()))
    parts = ", ".join(f"{unit.format(spent[s])} on {s.value}" for s in TrialState if spent[s])
    held = total_cost(line.record for line in data.summaries)
    hours = {"CPU": held.cpu_hours, "GPU": held.gpu_hours}
    whole = unit.format(sum(spent.values()))
    notes = [f"Worker-{unit.name}: {whole} in total; {parts}."] if parts else []
    each = [f"{k}-{unit.name}: {unit.format(3600 * h)}" for k, h in hours.items() if h]
    notes += [f"{'; '.join(each)}, with the waits for workers."] if each else []
    return PageSection("Time and cost", notes, figures.costs(data) if spent else None)
