"""The second half of the fault matrix, "hostile and exhausted": which code injects each fault.

A row's name is the letter of its subject and a number. Keep the letters in order.
"""

from __future__ import annotations

from tests.chaos.outcome import Row
from tests.chaos.pytest_rows import row_of_tests

HOSTILE_ROWS: dict[str, Row] = {
    # A. Errors inside callbacks of Ray Tune, storage that fails, a driver that is stuck.
    # B. Signals of real life; Ray's own processes killed.
    "B1": row_of_tests(
        "the driver ended in every orderly way",
        "tests/ray/test_stop_and_pause.py::test_sweep_resumes_after_every_kind_of_stop",
    ),
    # C. Records deleted, truncated, changed or swapped.
    # D. Secrets in the environment.
    # E. A folder from a stranger.
    # F. Ray's listeners, tokens and temporary folders.
    # G. Inputs that hang.
    # H. A sweep that only fails.
    # I. Small ones: dead drivers, read-only storage, large folders.
    # J. Two hosts.
    # K. Searchers at their edges.
}
