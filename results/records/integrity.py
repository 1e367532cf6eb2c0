"""Finds what is missing, damaged, changed or foreign in the records of a sweep.

Every command that ranks or reports asks here first: without a trial's reports another trial wins.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from results.paths import SweepPaths
from results.records.record_log import logged_name, read_record_log
from results.records.reports import Report, ReportChain
from results.records.trial import TrialRecord, parse_trial
from results.trial_paths import TrialPaths
from search_spaces.checksum import json_is_intact
from search_spaces.errors import DamagedRecordsError, UserError, short_reason
from search_spaces.files import parse_json, read_regular

UNCHECKED = "its records are of a version that did not count them; lost ones may go unnoticed"
_ROUNDS = 3
_SHOWN = 10
_LOG, _STATE = "records.jsonl", "state.json"
_STATE_MEMBERS = {"key", "started", "spent"}
_TRIAL = re.compile(r"t\d{4,}(-\d+)?")


@dataclass(frozen=True)
class Integrity:
    """What a check of a sweep folder found.

    Attributes:
        problems: one line each, by file.
        unreadable: trials whose record cannot be read.
        unchecked: whether the records are of a version that did not count them.
        read: the trials that can be read, by id; empty unless they are kept.
    """

    paths: SweepPaths
    problems: tuple[str, ...] = ()
    unreadable: frozenset[str] = frozenset()
    unchecked: bool = False
    read: Mapping[str, tuple[TrialRecord, ReportChain]] = field(default_factory=dict, repr=False)

    def trials(self) -> Iterator[tuple[TrialRecord, list[Report]]]:
        """Every trial that was kept, and its reports, as `read_trials_with_reports` does."""
        for _, (record, chain) in sorted(self.read.items()):
            yield record, chain.reports(record.end_step)

    def last_reports(
        self, metrics: Collection[str], *, in_all: bool = False
    ) -> Iterator[tuple[TrialRecord, list[Report]]]:
        """Every trial that was kept, and its last report if it has these metrics, else all.

        Args:
            in_all: whether all reports of a trial must have them, or all are returned.
        """
        keys = [json.dumps(name).encode() + b":" for name in metrics]
        for _, (record, chain) in sorted(self.read.items()):
            last = chain.last_report(record.end_step)
            has_all = bool(last) and last[0].metrics.keys() >= set(metrics)
            if has_all and in_all:
                has_all = all(key in line for line in chain.lines for key in keys)
            yield record, last if has_all else chain.reports(record.end_step)

    @property
    def readable(self) -> SweepPaths:
        """The sweep without the trials whose record cannot be read."""
        return replace(self.paths, left_out=self.unreadable)

    @property
    def words(self) -> list[str]:
        """The problems, the first ones of many, each with the sweep's name."""
        notes = [f"{self.paths.name}: {UNCHECKED}"] if self.unchecked else []
        more = len(self.problems) - _SHOWN
        shown = [f"{self.paths.name}: {line}" for line in self.problems[:_SHOWN]]
        return [*notes, *shown, *([f"{self.paths.name}: {more} more"] if more > 0 else [])]

    def require(self) -> None:
        """Raise unless the records are whole.

        Raises:
            DamagedRecordsError: they are not.
        """
        if self.problems:
            how = "tune resume repairs what it can; --accept-damage goes on without the rest"
            raise DamagedRecordsError(*self.words, f"{self.paths.name}: {how}")


def check_records(paths: SweepPaths, *, keep: bool = False) -> Integrity:
    """Hold the records and reports of a sweep against each other.

    The sweep may be running: what differs is read again, because its driver may have written in
    between.

    Args:
        keep: for a caller that needs all trials, which are then read only once.
    """
    found = _check(paths, None, keep)
    unchecked, read = found.unchecked, found.read
    for _ in range(_ROUNDS - 1):
        if found.problems:
            found = _check(paths, found.suspects - {_LOG, _STATE} or None, keep)
            read |= found.read
    unreadable = frozenset(found.unreadable)
    kept = {name: trial for name, trial in read.items() if name not in unreadable}
    return Integrity(paths, tuple(found.problems), unreadable, unchecked, kept)


def report_problems(trial: TrialPaths, record: TrialRecord, chain: ReportChain) -> Iterator[str]:
    """What is wrong with a trial's reports, the clearest first."""
    name = f"{trial.root.name}/{trial.reports.name}"
    last, end = chain.last_step, record.end_step
    if end is not None and (last is None or last < end):
        is_at = "has no report" if last is None else f"ends at step {last}"
        yield f"incomplete: {name} {is_at}, its record says {end}"
    yield from _count_problems(name, record, chain)
    if chain.problem:
        yield f"changed: {name}: {chain.problem}"


class _Findings:
    """Problems by file, and the names of the files to read again."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.suspects: set[str] = set()
        self.unreadable: set[str] = set()
        self.unchecked = False
        self.read: dict[str, tuple[TrialRecord, ReportChain]] = {}

    def add(self, name: str, problem: str) -> None:
        self.problems.append(problem)
        self.suspects.add(name)


def _check(paths: SweepPaths, only: Collection[str] | None, keep: bool) -> _Findings:
    """Check all files, or only some: paths in the sweep folder."""
    found = _Findings()
    # before the log: it has at least the lines of these contents
    root, template = f"{paths.root}/", logged_name(paths, paths.trial("{}").record)
    folders = os.listdir(paths.trials) if only is None and paths.trials.is_dir() else ()
    names = only or [template.format(name) for name in folders if _TRIAL.fullmatch(name)]
    contents = {name: _content(root + name) for name in names}
    log = None
    try:
        log = read_record_log(paths)
    except OSError as e:
        found.add(_LOG, f"damaged: {paths.record_log.name} cannot be read ({e.strerror})")
    _check_state(paths, found)  # of a sweep: records alone have none
    if only is None and log is not None:
        later = log.writes.keys() - contents.keys()
        contents |= {name: _content(root + name) for name in later}
    counted, trials, spec = False, paths.trials, logged_name(paths, paths.spec)
    for name, data in sorted(contents.items()):
        is_stale = log is not None and (
            data is not None and log.is_older(name, data)
            if name == spec  # users may have edited it
            else not log.is_current(name, data)
        )
        if is_stale:
            found.add(name, _not_current(name, data))
        trial = TrialPaths(trials / os.path.basename(os.path.dirname(name)))
        if log is None and data is None and trial.reports.exists():
            found.add(name, f"missing: {name.removeprefix('trials/')}")
        if data is not None and name == template.format(trial.root.name):
            counted |= _check_trial(trial, data, name, found, keep)
    if log is None and counted:
        found.add(_LOG, f"missing: {paths.record_log.name}, which lists the records")
    found.unchecked = log is None and not counted and bool(contents)
    return found


def _content(file: str) -> bytes | None:
    """The content of a file; empty if it cannot be read, None if it is missing."""
    try:
        return read_regular(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return b""


def _check_state(paths: SweepPaths, found: _Findings) -> None:
    if not os.path.lexists(paths.spec):
        return
    try:
        state = parse_json(data := read_regular(paths.state))
        if not json_is_intact(data):
            raise ValueError("does not match its checksum")
        if not (isinstance(state, dict) and state.keys() >= _STATE_MEMBERS):
            raise ValueError("not what this version writes")
    except (OSError, ValueError) as e:
        found.add(_STATE, f"damaged: {_STATE}: {short_reason(e)}")


def _not_current(name: str, data: bytes | None) -> str:
    short = name.removeprefix("trials/")
    if data is None:
        return f"missing: {short}, which records.jsonl lists"
    return f"changed: {short} is not what records.jsonl lists last; damaged, older, or foreign"


def _check_trial(trial: TrialPaths, data: bytes, name: str, found: _Findings, keep: bool) -> bool:
    """Check a trial's record and reports; returns whether a version wrote it that counts them."""
    try:
        record = parse_trial(trial, data)
    except UserError as e:
        found.unreadable.add(trial.root.name)
        if name not in found.suspects:
            found.add(name, f"damaged: {e.problems[0]}")
        return False
    try:
        chain = record.read_chain(trial)
        problem = None if chain.known else next(report_problems(trial, record, chain), None)
    except UserError as e:
        chain, problem = ReportChain(), f"damaged: {e.problems[0]}"
        found.unreadable.add(trial.root.name)
    if keep:
        found.read[record.id] = record, chain
    if problem:
        found.add(name, problem)
    return any(a.reports is not None for a in record.attempts)


def _count_problems(name: str, record: TrialRecord, chain: ReportChain) -> Iterator[str]:
    for attempt in record.attempts:
        links = chain.links.get(attempt.number, [])
        if not attempt.reports:
            continue
        if len(links) < attempt.reports:
            of = f"{len(links)} of the {attempt.reports} reports of attempt {attempt.number}"
            yield f"incomplete: {name} has {of}"
        elif links[attempt.reports - 1] != attempt.last_report:
            yield f"changed: {name} has other reports of attempt {attempt.number} than its record"
    if (newest := max(chain.links, default=0)) > len(record.attempts):
        yield f"changed: {name} has reports of attempt {newest}, its record has none of it"
