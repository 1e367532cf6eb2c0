"""The colours of all plots. Each has one meaning, and is legible on white and on black."""

from __future__ import annotations

from results.records.trial import TrialState
from results.records.worker_samples import PHASES

STATES = {
    TrialState.COMPLETED: "#1a9c6b",
    TrialState.STOPPED: "#e0a030",
    TrialState.FAILED: "#c0392b",
    TrialState.RUNNING: "#2e86c1",
    TrialState.PAUSED: "#8e6bbf",
    TrialState.PENDING: "#95a5a6",
}
BEST = "#e0218a"
"""The best so far, the winner's curve, the Pareto front."""
WENT_ON = "#5fb0b7"
"""Trials that continued above a rung."""
METHODS = ("#9c6644", "#d4a373")
"""Of the importance of parameters."""
INHERITED = "#b56576"
TRACK = "#c8d0d4"
STARTING, IDLE = "#546e7a", "#d4e157"
"""Of a group of workers: it waits for its processes; it has no trial."""
PHASE = dict(
    zip(
        PHASES,
        ("#cfd8dc", "#ffd6a5", "#a8dadc", "#cdb4db", "#90caf9", "#ffadad", "#bcaaa4"),
        strict=True,
    )
)
SWEEPS = ("#3b6fb6", "#d1495b", "#6a994e", "#edae49", "#7b5ea7", "#3fa7a0")
"""Of the lines of a comparison, again from the start for more."""
RUNG = "#888888"
