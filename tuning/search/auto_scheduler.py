"""The scheduler `auto`: which one it picks, and why. What it picked is frozen with the sweep."""

from __future__ import annotations

from search_spaces.spec.sweep import SweepSpec
from trainables.registry import resolve
from tuning.search.auto_searcher import AutoChoice


def choose_scheduler(spec: SweepSpec) -> AutoChoice:
    """The scheduler of a sweep: its own, or what `auto` picks by what its trials can do.

    Raises:
        UserError: the trainable is not there.
    """
    if spec.scheduler.name != "auto":
        return AutoChoice(spec.scheduler.name, "as the sweep file says")
    name, why = _pick(spec)
    return AutoChoice(name, f"auto: {why}")


def with_scheduler(spec: SweepSpec) -> SweepSpec:
    """The same sweep with `auto` replaced by what it picks."""
    picked = spec.scheduler.model_copy(update={"name": choose_scheduler(spec).name})
    return spec.model_copy(update={"scheduler": picked})


def auto_choice_comment(spec: SweepSpec) -> str:
    """The comment in a frozen sweep that says what `auto` picked; empty where it had no say."""
    return f"# scheduler {choose_scheduler(spec)}" if spec.scheduler.name == "auto" else ""


def _pick(spec: SweepSpec) -> tuple[str, str]:
    if spec.replicates > 1:
        return "asha", "replicates are compared together, and none of them can pause"
    trainable = resolve(spec.trainable)
    if not trainable.can_pause:
        return "asha", f"a {trainable.kind} saves when it likes, so it cannot pause at a rung"
    return "asha_promote", "its trials can pause at a rung and go on from there"
