"""Judging an exported model: an independent runtime, a fresh process, the same inputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from results.export.exportable import Exportable
from results.export.formats import Runtime

REPORT = "export_report.json"
RUNTIMES = Path(__file__).parent / "runtimes"
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
_TAIL = 2000  # characters of what a runtime said, for the message


@dataclass(frozen=True)
class Case:
    """One input: its shape, and how far the copy's output is from the original's."""

    shape: tuple[int, ...]
    max_abs_error: float
    max_abs_output: float

    @property
    def error(self) -> float:
        """Largest difference, as a part of the largest output (at least 1)."""
        return self.max_abs_error / max(1.0, self.max_abs_output)


@dataclass(frozen=True)
class Verification:
    """What one runtime says of a copy, as in `export_report.json`.

    Attributes:
        runtime: what ran the copy, with its version.
        tolerance: see `Runtime`.
        cases: one for each example input.
        tokens_equal: whether the copy's tokenizer gives the same ids; None for no tokenizer.
        problem: why there are no numbers: the runtime's own words.
    """

    runtime: str
    tolerance: float
    cases: tuple[Case, ...] = ()
    tokens_equal: bool | None = None
    problem: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the copy may be used for the original."""
        close = all(case.error <= self.tolerance for case in self.cases)  # false for NaN
        return bool(self.cases) and close and self.tokens_equal is not False

    @property
    def summary(self) -> str:
        """One line."""
        if self.problem is not None:
            return self.problem
        worst = max(case.error for case in self.cases)
        shapes = ", ".join("x".join(map(str, case.shape)) for case in self.cases)
        tokens = {None: "", True: ", same token ids", False: ", OTHER TOKEN IDS"}
        return (
            f"{self.runtime}, inputs {shapes}: largest error {worst:.1e}"
            f" (allowed {self.tolerance:.0e}){tokens[self.tokens_equal]}"
        )


def write_report(folder: Path, verdicts: Iterable[Verification]) -> None:
    """Write `export_report.json`: who judged the copy, and the numbers."""
    judges = [{**asdict(v), "passed": v.passed} for v in verdicts]
    report = {"passed": all(j["passed"] for j in judges), "judges": judges}
    (folder / REPORT).write_text(json.dumps(report, indent=1))


def verify_export(
    where: Path | str,
    runtime: Runtime,
    model: Exportable,
    *,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 600,
) -> Verification:
    """Run an exported model in a fresh process that has nothing of ours, and compare.

    Args:
        where: folder of the export, or what else the runtime takes.
        runtime: that judges it.
        model: the original.
        environment: for the fresh process, beside what is there.
        timeout_s: seconds for the fresh process.
    """
    import numpy as np

    with tempfile.TemporaryDirectory() as scratch:
        inputs, outputs = Path(scratch, "inputs.npz"), Path(scratch, "outputs.npz")
        given: dict[str, Any] = {
            str(i): example.numpy() for i, example in enumerate(model.examples)
        }
        if model.tokens is not None:
            given["text"] = np.array(model.tokens.text)
        np.savez(inputs, **given)
        script = RUNTIMES / runtime.script
        # -I: neither our package nor the folder of the script can be imported.
        command = [sys.executable, "-I", str(script), str(where), str(inputs), str(outputs)]
        # Code that comes with a model is copied before it is run: not to the user's own cache.
        own = {"HF_MODULES_CACHE": str(Path(scratch, "modules"))}
        env = {**os.environ, **_OFFLINE, **own, **(environment or {})}
        try:
            said = subprocess.run(
                command, capture_output=True, text=True, timeout=timeout_s, env=env, check=False
            )
        except subprocess.TimeoutExpired:
            return Verification(
                runtime.script, runtime.tolerance, problem=f"no answer in {timeout_s:g} s"
            )
        if said.returncode:
            problem = f"{runtime.script} failed: {said.stderr.strip()[-_TAIL:]}"
            return Verification(runtime.script, runtime.tolerance, problem=problem)
        with np.load(outputs) as found:
            return _judge(runtime, model, dict(found))


def _judge(runtime: Runtime, model: Exportable, found: dict[str, object]) -> Verification:
    import numpy as np
    import torch

    cases = []
    for i, example in enumerate(model.examples):
        with torch.no_grad():
            expected = runtime.sees(model.module(example)).double().numpy()
        got = np.asarray(found[str(i)], dtype=np.float64)
        error = np.abs(got - expected).max() if got.shape == expected.shape else np.inf
        cases.append(Case(tuple(example.shape), float(error), float(np.abs(expected).max())))
    same = None
    if model.tokens is not None and "tokens" in found:
        same = tuple(np.asarray(found["tokens"]).tolist()) == model.tokens.ids
    return Verification(str(found["runtime"]), runtime.tolerance, tuple(cases), same)
