"""The own formats of XGBoost and LightGBM."""

from __future__ import annotations

from pathlib import Path

from results.export.exportable import ModelSource
from results.export.format import Format, Runtime


class Booster(Format):
    """`model.ubj` of XGBoost or `model.txt` of LightGBM; `table.json` has columns and classes."""

    weights = (".ubj", ".txt")
    runtimes = (Runtime("run_booster.py", 1e-6),)

    def write(self, model: ModelSource, folder: Path) -> None:
        """See the base class."""
        if (own := model.exportable.own_format) is None:
            raise NotImplementedError("its models are modules of torch; see tune export --help")
        own.save(folder)

    def load_line(self, folder: Path) -> str:
        """See the base class."""
        if (folder / "model.ubj").exists():
            return 'xgboost.Booster(model_file="{folder}/model.ubj")'
        return 'lightgbm.Booster(model_file="{folder}/model.txt")'
