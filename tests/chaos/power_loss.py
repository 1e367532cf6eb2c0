"""Row 6: power loss during a checkpoint or a report, after each write, flush and rename."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from results.storage.fault_injection import POINTS
from tests.chaos.outcome import Outcome
from tests.trainables.crash import EVERY

ROOT = Path(__file__).parents[2]
_PREFIXES = ("checkpoint:", "manifest.json:", "reports.jsonl:")
_AT_ONCE = 10


def cases(count: int) -> list[str]:
    """Every fault point of the protocol, at each of its first six passes."""
    points = [p for p in sorted(POINTS) if p.startswith(_PREFIXES)]
    return [f"{point}:{n}" for n in range(1, 7) for point in points][:count]


def interrupted_commits(folder: Path, names: list[str]) -> Iterator[Outcome]:
    """Kill a trial at each point, then resume it."""
    for start in range(0, len(names), _AT_ONCE):
        chunk = names[start : start + _AT_ONCE]
        command = [sys.executable, "-m", "tests.trainables.crash", str(folder / str(start))]
        done = subprocess.run([*command, *chunk], cwd=ROOT, capture_output=True, check=True)
        results = json.loads(done.stdout)
        whole = [(step, metrics) for step, _, metrics in results["whole"]["reports"]]
        for point in chunk:
            yield _outcome(point, results[point], whole)


def _outcome(point: str, run: dict[str, Any], whole: list[tuple[int, Any]]) -> Outcome:
    if run["died"] == 0:
        return Outcome(point, injected=0)  # the trial passes this point less often
    curve = [(step, metrics) for step, _, metrics in run["after"]["reports"]]
    before = run["before"]
    lost = sum(step > before["newest"] for step, _, _ in before["reports"])
    broken = [] if curve == whole and run["resumed"] == 0 else ["I3: another curve"]
    broken += ["I6: more than one interval"] * (lost > EVERY)
    return Outcome(point, 1, lost, 0.0, tuple(broken))
