"""The rows of `make chaos`, by their number in docs/reliability.md."""

from __future__ import annotations

from tests.chaos import bad_input, commits, drivers
from tests.chaos.outcome import Row, numbered

ROWS = {
    "5": Row("the driver killed, resumed", drivers.cases, drivers.killed_drivers),
    "6": Row("power loss within a commit", commits.cases, commits.interrupted_commits),
    "fuzz": Row("sweep files changed at random", numbered, bad_input.mutated_files),
    "folders": Row("sweep folders damaged at random", numbered, bad_input.damaged_folders),
}
