"""The scheduler `auto`: chooses one and says why. The sweep's spec file records the choice."""

from __future__ import annotations

from search_spaces.spec.sweep import SweepSpec
from trainables.registry import resolve
from tuning.search.auto_searcher import AutoChoice


def choose_scheduler(spec: SweepSpec) -> AutoChoice:
    """The scheduler of a sweep: the named one, or the choice of `auto` for its trainable.

    Raises:
        UserError: the trainable does not exist.
    """
    if spec.scheduler.name != "auto":
        return AutoChoice(spec.scheduler.name, "as the sweep file says")
    name, why = _pick(spec)
    return AutoChoice(name, f"auto: {why}")


def with_scheduler(spec: SweepSpec) -> SweepSpec:
    """A copy of the spec with `auto` replaced by its choice."""
    picked = spec.scheduler.model_copy(update={"name": choose_scheduler(spec).name})
    return spec.model_copy(update={"scheduler": picked})


def auto_choice_comment(spec: SweepSpec) -> str:
    """The comment in the spec file that says what `auto` chose; empty without `auto`."""
    return f"# scheduler {choose_scheduler(spec)}" if spec.scheduler.name == "auto" else ""


def _pick(spec: SweepSpec) -> tuple[str, str]:
    if spec.replicates > 1:
        return "asha", "replicates are compared together, and none of them can pause"
    trainable = resolve(spec.trainable)
    if not trainable.can_pause:
        return "asha", f"a {trainable.kind} chooses when to save, so it cannot pause at a rung"
    return "asha_promote", "its trials can pause at a rung and continue from there"
