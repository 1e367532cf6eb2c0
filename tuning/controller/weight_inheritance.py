"""A trial goes on from the weights of another, with other parameters: population based training."""

from __future__ import annotations

import logging

from results.checkpoints.cleanup import copy_checkpoint
from results.checkpoints.commit import newest_intact
from results.paths import SweepPaths
from results.records.trial import InheritedWeights, TrialRecord, read_trial
from search_spaces.spec.sweep import SweepSpec
from tuning.search.compatibility import is_complete
from tuning.search.schedulers import Exploit

log = logging.getLogger(__name__)


def inherit(
    record: TrialRecord, step: int, exploit: Exploit, spec: SweepSpec, paths: SweepPaths
) -> TrialRecord:
    """Put the donor's newest checkpoint into the trial's folder; gives its record with the new
    parameters, which the caller writes. Done again after a crash in between, it does the same.

    Args:
        record: of a trial of which nothing runs.
        step: the trial's own last one.
        exploit: what the scheduler decided.
        spec, paths: of the sweep.

    Where the new parameters are none that the space can give (they break a constraint, or belong to
    another option), those of the donor are taken unchanged.
    """
    found = newest_intact(paths.trial(exploit.donor))
    if found is None:
        log.warning("%s goes on by itself: %s has no checkpoint", record.id, exploit.donor)
        return record
    copy_checkpoint(paths.trial(record.id), found)
    after = exploit.params
    if not is_complete(spec, after):
        after = read_trial(paths.trial(exploit.donor)).params
    taken = InheritedWeights(
        step=step,
        donor=exploit.donor,
        donor_step=found.step,
        before=record.params,
        after=after,
    )
    update = {
        "params": after,
        "config": spec.nest(after),
        "lineage": (*record.lineage, taken),
    }
    return record.model_copy(update=update)
