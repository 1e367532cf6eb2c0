"""Whether a metric compares the trials of a sweep: some depend on hyperparameters themselves."""

from __future__ import annotations

from search_spaces.nested import group
from search_spaces.spec.sweep import SweepSpec
from trainables.causal_lm.shape import TOKENIZER
from trainables.registry import resolve
from tuning.controller.preflight.samples import sample

_DATA = ("data", "source", "paths", "max_bytes")
_OTHERS = ("bits_per_byte", "ranking_accuracy", "exact_match")
"""Metrics that depend on fewer hyperparameters, to be used in place of others."""


def metric_key(
    spec: SweepSpec, metric: str, searched: tuple[str, ...], among: tuple[str, ...] = ()
) -> str | None:
    """The key, of those that are searched, on whose value a metric depends.

    Args:
        spec: of the sweep that has the metric.
        searched: dotted names.
        among: only these hyperparameters count; default: all.
    """
    name, _, named_set = metric.partition("/")
    terms = resolve(spec.trainable).metric_depends_on.get(name, ())
    owners = spec.fixed, group(spec.fixed.get("client"))
    has_sets = named_set or any(group(group(o.get("data")).get("selection")) for o in owners)
    of_data = _DATA if terms and not has_sets else ()  # all trials have the named sets
    counted = {t for t in (*terms, *of_data) if not among or t in among}
    return next((key for key in searched if key.rpartition(".")[2] in counted), None)


def other_metric(spec: SweepSpec, searched: tuple[str, ...]) -> str:
    """Advice on a metric that compares the trials; empty if the trainable reports none."""
    config = next((spec.nest(params) for params in sample(spec, 1)), {})
    reported = resolve(spec.trainable).reported_metrics(config)
    found = [m for m in _OTHERS if m in reported and metric_key(spec, m, searched) is None]
    return f"; use metric: {found[0]}" if found else ""


def comparability_notes(spec: SweepSpec) -> list[str]:
    """A line for each objective that does not compare the trials."""
    searched, notes = tuple(spec.domains()), []
    for metric in (o.metric for o in spec.objectives):
        if key := metric_key(spec, metric, searched):
            why = f"itself depends on {key}, which is searched: it does not compare these trials"
            if key.rpartition(".")[2] in TOKENIZER:
                why = (
                    f"is per token: it compares models of one tokenizer only, and {key} is searched"
                )
            notes.append(f"metric: {metric} {why}{other_metric(spec, searched)}")
    return notes
