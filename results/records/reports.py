"""The reports of a trial: rank 0 appends a line to `reports.jsonl` for each.

The lines of an attempt form a chain: the checksum of a line covers the trial's id and the checksum
of the attempt's line before. So a line that is lost, changed, or of another trial is noticed.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, ValidationError

from results.paths import TrialPaths
from results.storage.atomic import append_line
from search_spaces.checksum import json_is_intact
from search_spaces.errors import UserError
from search_spaces.files import read_regular

FIRST = "0" * 8
"""Stands for the line before the first one of an attempt."""
_TAIL = re.compile(rb',"previous":"([0-9a-f]{8})","chain":"([0-9a-f]{8})"}\s*\Z')
_PLACE = re.compile(rb'\A{"step":(-?\d+),.*"attempt":(\d+),"time":', re.DOTALL)
_TAIL_BYTES = 64


class Report(BaseModel):
    """One line of `reports.jsonl`: the metrics of a trial at a step. `time` is Unix seconds."""

    # extra: a newer version may write more fields; inf_nan: a diverged loss must be readable again
    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")

    step: int
    metrics: dict[str, float]
    attempt: int
    time: float


class ReportWriter:
    """Appends the reports of one attempt, of which it is the only writer.

    It reads the file once, at its first report.
    """

    def __init__(self, paths: TrialPaths, attempt: int) -> None:
        self._paths, self._attempt = paths, attempt
        self._last: str | None = None

    def append(self, report: Report) -> None:
        """Append one report durably (fsync)."""
        if self._last is None:
            self._last = [FIRST, *read_chain(self._paths).links.get(self._attempt, ())][-1]
        line, checksum = _chained(report, self._paths.root.name, self._last)
        append_line(self._paths.reports, line)
        self._last = checksum


def append_report(paths: TrialPaths, report: Report) -> None:
    """Append a single report durably. For many, a `ReportWriter` does not read the file again."""
    ReportWriter(paths, report.attempt).append(report)


def dump_reports(paths: TrialPaths, reports: list[Report]) -> bytes:
    """The content of a `reports.jsonl` with these reports of one attempt."""
    lines, last = [], FIRST
    for report in reports:
        line, last = _chained(report, paths.root.name, last)
        lines.append(f"{line}\n")
    return "".join(lines).encode()


def read_reports(paths: TrialPaths, end_step: int | None = None) -> list[Report]:
    """The trial's reports by ascending step, one per step: that of the newest attempt.

    Reports after `end_step` are left out: they came after the decision to stop. Lines that are
    damaged, or of another trial, are left out too.
    """
    by_step: dict[int, Report] = {}
    for report in parse_reports(_content(paths), paths.root.name):
        known = by_step.get(report.step)
        if known is None or report.attempt >= known.attempt:
            by_step[report.step] = report
    steps = sorted(s for s in by_step if end_step is None or s <= end_step)
    return [by_step[s] for s in steps]


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
    for line in data.split(b"\n"):
        tail = _tail(line)
        if not (_is_unchained(line) if tail is None else _matches(line, tail, trial_id)):
            continue
        try:
            yield Report.model_validate_json(line)
        except ValidationError:  # torn, or from another version
            continue


@dataclass
class ReportChain:
    """What a `reports.jsonl` holds, without the metrics.

    Attributes:
        links: per attempt, the checksums of its lines in order.
        last_step: the largest step of all lines; None without any.
        problem: the first line that no writer left there like this; None if there is none.
    """

    links: dict[int, list[str]] = field(default_factory=dict)
    last_step: int | None = None
    problem: str | None = None


def read_chain(paths: TrialPaths) -> ReportChain:
    """Check the lines of a trial's `reports.jsonl`.

    A line may be torn, because its writer was killed, and may be there twice, because its write was
    repeated.
    """
    chain = ReportChain()
    for number, line in enumerate(_content(paths).split(b"\n"), 1):
        problem = _follow(chain, line, paths.root.name) if line else None
        if problem and not chain.problem:
            chain.problem = f"line {number} {problem}"
    return chain


def _follow(chain: ReportChain, line: bytes, trial_id: str) -> str | None:
    """Add a line to the chain of its attempt; returns what is wrong with it."""
    tail, place = _tail(line), _PLACE.match(line)
    if tail is not None and not (place and _matches(line, tail, trial_id)):
        return "is damaged, or of another trial"
    if place is None or (tail is None and not _is_unchained(line)):
        return None  # torn
    step = int(place[1])
    chain.last_step = step if chain.last_step is None else max(step, chain.last_step)
    if tail is None:
        return None
    previous, checksum = tail[1].decode(), tail[2].decode()
    links = chain.links.setdefault(int(place[2]), [])
    if previous == (links[-1] if links else FIRST):
        links.append(checksum)
    elif checksum not in links:
        return "does not follow the line before it: lines are missing or damaged"
    return None


def _chained(report: Report, trial_id: str, previous: str) -> tuple[str, str]:
    """The line of a report, and its checksum."""
    body = f'{report.model_dump_json()[:-1]},"previous":"{previous}"'
    checksum = _checksum(body.encode(), trial_id)
    return f'{body},"chain":"{checksum}"}}', checksum


def _tail(line: bytes) -> re.Match[bytes] | None:
    return _TAIL.search(line, max(0, len(line) - _TAIL_BYTES))


def _matches(line: bytes, tail: re.Match[bytes], trial_id: str) -> bool:
    return _checksum(line[: tail.end(1) + 1], trial_id) == tail[2].decode()


def _is_unchained(line: bytes) -> bool:
    """Whether a whole line is of a version without chains, and not damaged."""
    return line.endswith(b"}") and json_is_intact(line)


def _checksum(body: bytes, trial_id: str) -> str:
    return f"{zlib.crc32(body, zlib.crc32(trial_id.encode())):08x}"


def _content(paths: TrialPaths, start: int = 0) -> bytes:
    try:
        return read_regular(paths.reports, start)
    except FileNotFoundError:
        return b""
    except OSError as e:
        raise UserError(f"{paths.reports}: cannot be read ({e.strerror})") from e
