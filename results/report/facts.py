"""When, where and with what a sweep ran, in words."""

from __future__ import annotations

import time
from collections.abc import Iterable

from results.records.environment import Environment
from results.report.sweep_data import SweepData
from search_spaces.errors import first_few

_HARDWARE = ("device", "processor")


def fact_lines(data: SweepData) -> list[str]:
    """Date; host and hardware; versions; commit: a line each, as far as it is known."""
    versions = {name: one.versions[name] for one in data.environments for name in one.versions}
    differ = any(one.versions != data.environments[0].versions for one in data.environments)
    lines = [_dates(data), _places(data.environments)]
    lines.append(", ".join(f"{name} {v}" for name, v in versions.items()))
    lines[-1] += " (not the same in all trials)" * differ
    lines.append(f"commit {data.commit}" if data.commit else "")
    return [line for line in lines if line]


def _dates(data: SweepData) -> str:
    attempts = [a for record, _ in data.trials for a in record.attempts]
    if not attempts:
        return ""
    ends = [a.ended for a in attempts if a.ended is not None]
    runs = len(ends) < len(attempts)
    end = "" if runs or not ends else f", ended {_moment(max(ends))}"
    return f"started {_moment(min(a.started for a in attempts))}{end}"


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(seconds))


def _places(found: Iterable[Environment]) -> str:
    hosts = list(dict.fromkeys(one.host for one in found if one.host))
    parts = (one.hardware.get(name) for one in found for name in _HARDWARE)
    hardware = list(dict.fromkeys(part for part in parts if part))
    on = f"on {first_few(hosts)}" if hosts else ""
    return f"{on}: {first_few(hardware)}" if on and hardware else on
