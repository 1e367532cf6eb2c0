"""The stage `data`: a data set for the stages behind it."""

from __future__ import annotations

from typing import Any

from search_spaces.pipeline.stages import DataStage
from tuning.pipelines.base import Surroundings


def run(stage: DataStage, around: Surroundings) -> dict[str, Any]:
    """Make the data set; returns the number of texts of each split."""
    from trainables.data.prepare import prepare

    made = prepare(stage, around.pipeline.directory, around.paths.stage(stage.name))
    texts = {name: split["texts"] for name, split in made["splits"].items()}
    out = ", ".join(f"{count} {why}" for why, count in made["left out"].items()) or "none"
    around.say(f"{', '.join(f'{n} {name}' for name, n in texts.items())} texts; left out: {out}")
    return texts
