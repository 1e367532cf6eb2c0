"""The reports of a trial: rank 0 appends a line to `reports.jsonl` for each.

The lines of an attempt form a chain: the checksum of a line covers the trial's id and the checksum
of the attempt's line before. So a line that is lost, changed, or of another trial is noticed.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from results.storage.atomic import append_line
from results.trial_paths import TrialPaths
from search_spaces.checksum import json_is_intact
from search_spaces.errors import DamagedRecordsError
from search_spaces.files import read_regular

FIRST = "0" * 8
"""Stands for the line before the first one of an attempt."""
_PLACE = re.compile(rb'{"step":(-?\d+),.*"attempt":(\d+),"time":', re.DOTALL)
_TAIL = re.compile(rb',"previous":"([0-9a-f]{8})","chain":"([0-9a-f]{8})"}\s*\Z')
_LINE = re.compile(
    rb'({"step":(-?\d+),.*"attempt":(\d+),"time":.*,"previous":"([0-9a-f]{8})"),'
    rb'"chain":"([0-9a-f]{8})"}\s*\Z',
    re.DOTALL,
)
_OPENING = b'{"step":'
_TAIL_BYTES = 64


class Report(BaseModel):
    """One line of `reports.jsonl`: the metrics of a trial at a step. `time` is Unix seconds."""

    # extra: a newer version may write more fields; inf_nan: a diverged loss must be readable again
    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")

    step: int
    metrics: dict[str, float]
    attempt: int
    time: float

    def clock(self, name: str) -> int:
        """Its time by a metric, as schedulers count it; its step, if that is not a number."""
        value = self.metrics.get(name, self.step)
        return int(value) if math.isfinite(value) else self.step


_REPORTS = TypeAdapter(list[Report])


class ReportWriter:
    """Appends the reports of one attempt, of which it is the only writer.

    It reads the file once, at its first report, unless the trial is `new`: then there is none.
    """

    def __init__(self, paths: TrialPaths, attempt: int, *, new: bool = False) -> None:
        self._paths, self._attempt = paths, attempt
        self._last = FIRST if new else None

    def append(self, report: Report) -> None:
        """Append one report durably (fsync)."""
        line, checksum = self._chained(report)
        append_line(self._paths.reports, line)
        self._last = checksum

    def next_line(self, report: Report) -> str:
        """The line of one report, which the caller appends."""
        line, self._last = self._chained(report)
        return line

    def _chained(self, report: Report) -> tuple[str, str]:
        if self._last is None:
            self._last = [FIRST, *read_chain(self._paths).links.get(self._attempt, ())][-1]
        return _chained(report, self._paths.root.name, self._last)


def dump_reports(paths: TrialPaths, reports: list[Report]) -> bytes:
    """The content of a `reports.jsonl` with these reports of one attempt."""
    lines, last = [], FIRST
    for report in reports:
        line, last = _chained(report, paths.root.name, last)
        lines.append(f"{line}\n")
    return "".join(lines).encode()


def read_reports(paths: TrialPaths, end_step: int | None = None) -> list[Report]:
    """The trial's reports; see `ReportChain.reports`."""
    return read_chain(paths).reports(end_step)


def read_new_reports(
    paths: TrialPaths, position: int, end_step: int | None
) -> tuple[list[Report], int]:
    """Reports in complete lines after `position` bytes, up to `end_step`; and the new position."""
    data = _content(paths, position)
    complete = data.rfind(b"\n") + 1
    found = parse_reports(data[:complete], paths.root.name)
    return [r for r in found if end_step is None or r.step <= end_step], position + complete


def parse_reports(data: bytes, trial_id: str) -> Iterator[Report]:
    """The reports of lines that are intact."""
    return _parse(_check(data, trial_id).lines)


@dataclass
class ReportChain:
    """What a `reports.jsonl` holds.

    Attributes:
        links: per attempt, the checksums of its lines in order.
        last_step: the largest step of all lines; None without any.
        problem: the first line that no writer left there like this; None if there is none.
        lines: those that are intact, and of this trial.
        checksum: of the whole content, if all its lines are.
        known: whether no line was checked or counted, because the content has a known checksum.
    """

    links: dict[int, list[str]] = field(default_factory=dict)
    last_step: int | None = None
    problem: str | None = None
    lines: list[bytes] = field(default_factory=list)
    checksum: str = ""
    known: bool = False

    def reports(self, end_step: int | None = None) -> list[Report]:
        """The reports by ascending step, one per step: that of the newest attempt.

        Those after `end_step` are left out: they came after the decision to stop.
        """
        by_step: dict[int, Report] = {}
        for report in _parse(self.lines):
            known = by_step.get(report.step)
            if known is None or report.attempt >= known.attempt:
                by_step[report.step] = report
        steps = sorted(s for s in by_step if end_step is None or s <= end_step)
        return [by_step[s] for s in steps]

    def last_report(self, end_step: int | None) -> list[Report]:
        """The last one of `reports(end_step)`, if it is on the last line; else none.

        All others need not be parsed to find it.
        """
        last = list(_parse(self.lines[-1:])) if end_step is not None else []
        return [r for r in last if r.step == end_step]


def read_chain(paths: TrialPaths, unwritten: str = "", *, new: bool = False) -> ReportChain:
    """Check the lines of a trial's `reports.jsonl`, and some that are to be appended; of a `new`
    trial, which has no such file, only these.

    A line may be torn, because its writer was killed, and may be there twice, because its write was
    repeated.
    """
    data = b"" if new else _content(paths)
    if unwritten:
        torn = data and not data.endswith(b"\n")
        data += (b"\n" if torn else b"") + f"{unwritten}\n".encode()
    return _check(data, paths.root.name)


def read_known_chain(paths: TrialPaths, checksum: str, end_step: int | None) -> ReportChain | None:
    """A `reports.jsonl` whose lines were all checked when it had this checksum.

    None if the content is another, or does not end at `end_step`.
    """
    data = _content(paths)
    lines = data.removesuffix(b"\n").split(b"\n")
    last = _PLACE.match(lines[-1])
    if last is None or int(last[1]) != end_step or f"{zlib.crc32(data):08x}" != checksum:
        return None
    return ReportChain(last_step=end_step, lines=lines, checksum=checksum, known=True)


def _parse(lines: Sequence[bytes]) -> Iterator[Report]:
    try:  # all at once takes a third of the time
        yield from _REPORTS.validate_json(b"[" + b",".join(lines) + b"]")
    except ValidationError:
        for line in lines:
            with suppress(ValidationError):  # from another version
                yield Report.model_validate_json(line)


def _check(data: bytes, trial_id: str) -> ReportChain:
    chain, start = ReportChain(), zlib.crc32(trial_id.encode())
    for number, line in enumerate(data.split(b"\n"), 1):
        problem = _follow(chain, line, start) if line else None
        if problem and not chain.problem:
            chain.problem = f"line {number} {problem}"
    if not chain.problem and len(chain.lines) == data.count(b"\n"):
        chain.checksum = f"{zlib.crc32(data):08x}"
    return chain


def _follow(chain: ReportChain, line: bytes, start: int) -> str | None:
    """Add a line to the chain of its attempt; returns what is wrong with it."""
    found = _LINE.match(line)
    if found is None or zlib.crc32(found[1], start) != int(found[5], 16):
        return _follow_unchained(chain, line)
    chain.lines.append(line)
    step, previous, checksum = int(found[2]), found[4].decode(), found[5].decode()
    chain.last_step = step if chain.last_step is None else max(step, chain.last_step)
    links = chain.links.setdefault(int(found[3]), [])
    if previous == (links[-1] if links else FIRST):
        links.append(checksum)
    elif checksum not in links:
        return "does not follow the line before it: lines are missing or damaged"
    return None


def _follow_unchained(chain: ReportChain, line: bytes) -> str | None:
    """Add a line of a version without chains, unless it is torn."""
    if _TAIL.search(line, max(0, len(line) - _TAIL_BYTES)):
        return "is damaged, or of another trial"
    if not _is_beginning(line):
        return "is not readable: it is no report, nor the beginning of one"
    if line.endswith(b"}") and json_is_intact(line):
        chain.lines.append(line)
        if place := _PLACE.match(line):
            chain.last_step = max(int(place[1]), chain.last_step or int(place[1]))
    return None


def _is_beginning(line: bytes) -> bool:
    """Whether a line may be what a writer left when it was killed, or the machine lost power: the
    beginning of a report, or zeros."""
    text = line.rstrip(b"\0")
    return text.startswith(_OPENING) or _OPENING.startswith(text)


def _chained(report: Report, trial_id: str, previous: str) -> tuple[str, str]:
    """The line of a report, and its checksum."""
    body = f'{report.model_dump_json()[:-1]},"previous":"{previous}"'
    checksum = f"{zlib.crc32(body.encode(), zlib.crc32(trial_id.encode())):08x}"
    return f'{body},"chain":"{checksum}"}}', checksum


def _content(paths: TrialPaths, start: int = 0) -> bytes:
    try:
        return read_regular(paths.reports, start)
    except FileNotFoundError:
        return b""
    except OSError as e:
        raise DamagedRecordsError(f"{paths.reports}: cannot be read ({e.strerror})") from e
