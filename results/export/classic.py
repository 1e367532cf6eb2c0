"""The folder that training scripts leave: logs as JSON and CSV, settings, and `final/`.

metrics.csv            a row per report
training_log.json      the same, a list of objects
training_config.json   trainable, configuration, seed and workers
final/                 the model in a format, its card, and training_state.json
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from results.analysis.dataframes import metric_columns, metrics_csv
from results.checkpoints.commit import staged
from results.export.folder import check_target
from results.records.trial import Report, TrialRecord
from search_spaces.redaction import redacted

T = TypeVar("T")


def write_classic(
    target: Path,
    export: Callable[[Path], T],
    trainable: str,
    record: TrialRecord,
    reports: Sequence[Report],
    *,
    force: bool,
) -> T:
    """Write the folder; it appears complete.

    Args:
        target: the folder.
        export: writes the model into the folder that it is given; its result is returned.
        trainable: of the sweep.
        record, reports: of the trial.
        force: replace an earlier export at `target`.

    Raises:
        UserError: the target exists; or what `export` raises.
    """
    check_target(target, force)
    with staged(target) as folder:
        made = export(folder / "final")
        log = [{"step": r.step, "time": r.time, **metric_columns(r)} for r in reports]
        last = log[-1] if log else {}
        (folder / "metrics.csv").write_text(metrics_csv(reports))
        _write(folder / "training_log.json", log)
        settings: dict[str, object]
        settings = {"trainable": trainable, "config": redacted(record.config), "seed": record.seed}
        settings["workers"] = record.attempts[-1].workers if record.attempts else 1
        _write(folder / "training_config.json", settings)
        _write(folder / "final" / "training_state.json", {"trial": record.id, **last})
        return made


def _write(file: Path, content: object) -> None:
    file.write_text(json.dumps(content, indent=1) + "\n")
