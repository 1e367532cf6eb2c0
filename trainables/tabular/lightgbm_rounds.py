"""Rounds and models of LightGBM, for `trainables.tabular.lightgbm`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import torch

from trainables.base import Split
from trainables.data.tables.files import Array
from trainables.data.tables.schema import Schema
from trainables.tabular.boosting import Boosting, Model, Start, by_class

FILE = "model.txt"


class Rounds(Boosting):
    """Rounds of LightGBM, which are the same after a resume.

    Its generators are in no model. So each round that draws gets seeds of its own. Where that is
    not all of the state (dart, goss, …), a resumed trial trains its rounds again.
    """

    def __init__(self, start: Start[Any]) -> None:
        config, table, worker = start.config, start.table, start.worker
        schema = table.schema
        self._schema, self._seed = schema, worker.seed
        self._booster: Any = None
        self._seeds_rounds = config.draws and config.resumes_from_trees
        self._fraction = config.subsample
        given = config.library_params(schema.task, len(schema.classes))
        threads = torch.get_num_threads()
        self._params = {**given, "seed": worker.seed % 2**31, "num_threads": threads}
        x, y, weight = table.rows(Split.TRAIN)
        data: dict[str, Any] = {"params": self._params, "categorical_feature": schema.categorical}
        self._train = lightgbm.Dataset(np.asarray(x), y, weight=weight, **data)
        x, y, _ = table.rows(Split.SELECTION)
        self._selection = self._train.create_valid(np.asarray(x), y)
        goes_on = config.resumes_from_trees and start.saved is not None
        self._saved = f"{start.saved}/{FILE}" if goes_on else None
        for number in range(1, 1 if goes_on else start.rounds + 1):
            self.update(number)
            worker.heartbeat()

    @property
    def size(self) -> int:
        """See the base class."""
        return int(self._booster.current_iteration())

    def update(self, number: int) -> None:
        """See the base class."""
        seeds = self._seeds(number) if self._seeds_rounds else {}
        if self._booster is None:
            self._booster = lightgbm.train(
                {**self._params, **seeds},
                self._train,
                1,
                valid_sets=[self._selection],
                init_model=self._saved,
                keep_training_booster=True,
            )
            return
        if seeds:
            self._booster.reset_parameter(seeds)
        self._booster.update()

    def _seeds(self, number: int) -> dict[str, Any]:
        """Those of a round; the generator of rows restarts only with another fraction."""
        drawn = np.random.SeedSequence([self._seed, number]).generate_state(3) >> 1
        names = ("bagging_seed", "feature_fraction_seed", "extra_seed")
        found: dict[str, Any] = dict(zip(names, drawn.tolist(), strict=True))
        if self._fraction < 1:
            found["subsample"] = np.nextafter(self._fraction, number % 2)
        return found

    def predict(self) -> Array:
        """See the base class."""
        found = []

        def keep(predicted: Array, _: Any) -> tuple[str, float, bool]:
            found.append(np.array(predicted))
            return "", 0.0, True

        self._booster.eval_valid(keep)
        return by_class(found[0], self._schema.task)

    def save(self, folder: Path) -> None:
        """See the base class."""
        self._booster.save_model(folder / FILE, num_iteration=-1)


class Trees(Model):
    """The first `size` rounds of a checkpoint's model."""

    def __init__(self, folder: Path, size: int) -> None:
        super().__init__(Schema.load(folder))
        self._size = size
        self._booster = lightgbm.Booster(model_file=folder / FILE)

    def predict(self, x: Array) -> Array:
        """See the base class."""
        threads = torch.get_num_threads()
        found: Any = self._booster.predict(
            np.asarray(x), num_iteration=self._size, num_threads=threads, validate_features=False
        )
        return by_class(found, self.schema.task)

    def write(self, folder: Path) -> None:
        """See the base class."""
        self._booster.save_model(folder / FILE, num_iteration=self._size)

    def convert(self, types: Any) -> Any:
        """See the base class."""
        from onnxmltools import convert_lightgbm

        kept = lightgbm.Booster(model_str=self._booster.model_to_string(self._size))
        return convert_lightgbm(kept, initial_types=types, zipmap=False)
