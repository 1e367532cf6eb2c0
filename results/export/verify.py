"""Verify an exported model: an independent runtime in a fresh process, on the same inputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unicodedata import normalize

from results.export.exportable import Exportable
from results.export.format import Runtime

REPORT = "export_report.json"
RUNTIMES = Path(__file__).parent / "runtimes"
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
_MESSAGE_CHARS = 2000
"""Characters of a runtime's stderr that a message quotes."""


@dataclass(frozen=True)
class Case:
    """One input: its shape, and the distance of the copy's output from the original's.

    Attributes:
        divergence: mean Kullback-Leibler divergence of the copy's probabilities from the
            original's, in nats for each prediction: the loss that quantization adds, if the
            original is right. None unless weights are rounded and the outputs are logits.
    """

    shape: tuple[int, ...]
    max_abs_error: float
    max_abs_output: float
    divergence: float | None = None

    @property
    def error(self) -> float:
        """Largest difference, relative to the largest output (or to 1 if that is smaller)."""
        return self.max_abs_error / max(1.0, self.max_abs_output)


@dataclass(frozen=True)
class Verification:
    """The result of one runtime, as in `export_report.json`.

    Attributes:
        runtime: name and version of the program that ran the copy.
        cases: one for each example input.
        tokens_equal: whether the copy's tokenizer gives the same ids; None without a tokenizer.
        problem: why the runtime gave no output; None if it gave one.
        most_lost: the largest divergence allowed; None if none was measured.
        composed: whether the tokens are those of a composed text (NFC), because the runtime does
            not compose as the tokenizer does: it gives other tokens of other texts.
    """

    runtime: str
    tolerance: float
    cases: tuple[Case, ...] = ()
    tokens_equal: bool | None = None
    problem: str | None = None
    most_lost: float | None = None
    composed: bool = False

    @property
    def divergences(self) -> list[float]:
        """Of the cases in which it was measured."""
        return [case.divergence for case in self.cases if case.divergence is not None]

    @property
    def passed(self) -> bool:
        """Whether the copy's outputs and token ids are those of the original."""
        close = all(case.error <= self.tolerance for case in self.cases)  # false for NaN
        little = self.most_lost is None or all(one <= self.most_lost for one in self.divergences)
        return bool(self.cases) and close and little and self.tokens_equal is not False

    @property
    def summary(self) -> str:
        """One line."""
        if self.problem is not None:
            return self.problem
        worst = max(case.error for case in self.cases)
        shapes = ", ".join("x".join(map(str, case.shape)) for case in self.cases)
        tokens = {None: "", True: ", same token ids", False: ", OTHER TOKEN IDS"}
        allowed, added = f"(allowed {self.most_lost or 0:.0e})", ""
        if self.divergences:
            added = f", adds {max(self.divergences):.1e} nats to the loss {allowed}"
        return (
            f"{self.runtime}, inputs {shapes}: largest error {worst:.1e}"
            f" (allowed {self.tolerance:.0e}){added}{tokens[self.tokens_equal]}"
            f"{' of composed text (NFC)' * self.composed}"
        )


def write_report(
    folder: Path, verifications: Iterable[Verification], measured: Mapping[str, Any]
) -> None:
    """Write `export_report.json`: which runtimes verified the copy, and the numbers."""
    judges = [{**asdict(v), "passed": v.passed} for v in verifications]
    report = {"passed": all(j["passed"] for j in judges), "judges": judges, **measured}
    (folder / REPORT).write_text(json.dumps(report, indent=1))


def perplexity_line(folder: Path) -> str | None:
    """What quantization has done to the perplexity, as the report has it; None: not asked for."""
    file = folder / REPORT
    found = json.loads(file.read_text()).get("perplexity") if file.is_file() else None
    if found is None or "reason" in found:
        return found and f"not measured: {found['reason']}"
    before, after = found["original"], found["quantized"]
    return f"{after:.6g}, unquantized {before:.6g} ({after / before - 1:+.2%}), on {found['on']}"


def verify_export(
    where: Path | str,
    runtime: Runtime,
    model: Exportable,
    *,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 600,
) -> Verification:
    """Run an exported model in a fresh process that cannot import this project, and compare.

    Args:
        where: folder of the export, or another address that the runtime takes.
        model: the original.
        environment: variables for the fresh process, added to those of this one.
        timeout_s: seconds for the fresh process.
    """
    import numpy as np

    with tempfile.TemporaryDirectory() as scratch:
        inputs, outputs = Path(scratch, "inputs.npz"), Path(scratch, "outputs.npz")
        composed = False
        arrays: dict[str, Any] = {str(i): x.numpy() for i, x in enumerate(model.examples)}
        if model.tokens is not None and runtime.reads_tokens:
            given = model.tokens.text, json.dumps(model.tokens.messages, ensure_ascii=False)
            if composed := model.tokens.composed and not runtime.composes:
                given = normalize("NFC", given[0]), normalize("NFC", given[1])
            arrays |= zip(("text", "messages"), map(np.array, given), strict=True)
        np.savez(inputs, **arrays)
        script = RUNTIMES / runtime.script
        # -I: neither this project nor the folder of the script can be imported.
        command = [sys.executable, "-I", str(script), str(where), str(inputs), str(outputs)]
        # transformers copies model code before it runs it: not into the user's own cache.
        modules = {"HF_MODULES_CACHE": str(Path(scratch, "modules"))}
        env = {**os.environ, **_OFFLINE, **modules, **(environment or {})}
        problem = None
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=timeout_s, env=env, check=False
            )
            if done.returncode:
                problem = f"{runtime.script} failed: {done.stderr.strip()[-_MESSAGE_CHARS:]}"
        except subprocess.TimeoutExpired:
            problem = f"no answer in {timeout_s:g} s"
        if problem:
            return Verification(runtime.script, runtime.tolerance, problem=problem)
        with np.load(outputs) as found:
            return replace(_compare(runtime, model, dict(found)), composed=composed)


def _compare(runtime: Runtime, model: Exportable, found: dict[str, object]) -> Verification:
    import numpy as np
    import torch

    cases = []
    for i, example in enumerate(model.examples):
        with torch.no_grad():
            expected = runtime.comparable(model.module(example)).double().numpy()
        got = np.asarray(found[str(i)], dtype=np.float64)
        same_shape = got.shape == expected.shape
        error = float(np.abs(got - expected).max()) if same_shape else np.inf
        is_logits = model.classes or model.tokens is not None
        is_measured = runtime.most_lost is not None and is_logits and same_shape
        lost = _divergence(expected, got) if is_measured else None
        cases.append(Case(tuple(example.shape), error, float(np.abs(expected).max()), lost))
    same = None
    if model.tokens is not None and "tokens" in found:
        read = (tuple(np.asarray(found[name]).tolist()) for name in ("tokens", "prompt"))
        same = tuple(read) == (model.tokens.ids, model.tokens.prompt)
    name = str(found["runtime"])
    return Verification(name, runtime.tolerance, tuple(cases), same, most_lost=runtime.most_lost)


def _divergence(expected: Any, got: Any) -> float:
    """Mean of KL(expected || got) over the predictions; arrays of logits, classes last."""
    import torch

    p, q = (torch.from_numpy(logits).log_softmax(-1) for logits in (expected, got))
    return float((p.exp() * (p - q)).sum(-1).mean())
